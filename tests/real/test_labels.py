"""Labels of servers and images: to say what they are for, and to find them by."""

import pytest

SMALL = ("--memory", "16M", "--network", "none", "--no-start")


@pytest.fixture
def labelled(millpond, micro_guest):
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    for name, tier in (("a", "web"), ("b", "db")):
        words = ("--label", f"tier={tier}", "--label", "demo")
        millpond.ok("server", "create", name, "--image", "guest", *SMALL, *words)
    millpond.ok("server", "create", "c", "--image", "guest", *SMALL)
    return millpond


def names(millpond, noun, *words):
    return [each["name"] for each in millpond.json(noun, "list", *words)]


def test_servers_are_found_by_their_labels(labelled):
    assert names(labelled, "server", "--label", "tier") == ["a", "b"]
    assert names(labelled, "server", "--label", "tier=db") == ["b"]
    assert names(labelled, "server", "--label", "tier=db", "--label", "demo") == ["b"]
    assert names(labelled, "server", "--label", "gone") == []
    assert labelled.json("server", "show", "a")["labels"] == {"demo": "", "tier": "web"}
    assert "Labels            demo, tier=web" in labelled.ok("server", "show", "a")


def test_labels_are_changed_and_survive_a_lost_state_directory(labelled):
    words = ("--label", "tier=cache", "--no-label", "demo")
    changed = labelled.json("server", "set", "a", "c", *words)
    assert [each["labels"] for each in changed] == [{"tier": "cache"}] * 2
    assert "changed a (" in labelled.ok("server", "set", "a", "--label", "spare")
    labelled.ok("server", "set", "a", "--no-label", "spare")
    assert "nothing is to be changed" in labelled.fails("server", "set", "a")[1]
    (labelled.state / "servers").rename(labelled.state / "lost")
    labelled.ok("doctor", "--adopt")
    assert names(labelled, "server", "--label", "tier=cache") == ["a", "c"]


def test_what_is_no_label_is_refused_before_anything_is_made(labelled, refuses):
    for words in (
        ("server", "create", "d", "--image", "guest", *SMALL, "--label", "a b=c"),
        ("server", "set", "a", "--label", "=x"),
        ("server", "list", "--label", ""),
        ("image", "set", "guest", "--label", "=x"),
    ):
        refuses(2, "is not KEY=VALUE", *words)


def test_images_have_labels_and_a_description(labelled, micro_guest):
    words = ("--description", "for trials", "--label", "os=none")
    changed = labelled.json("image", "set", "guest", *words)
    assert (changed["description"], changed["labels"]) == ("for trials", {"os": "none"})
    assert names(labelled, "image", "--label", "os=none") == ["guest"]
    assert names(labelled, "image", "--label", "os=linux") == []
    shown = labelled.ok("image", "show", "guest")
    assert "Labels       os=none" in shown
    assert "Description  for trials" in shown
    labelled.ok("image", "rename", "guest", "other")
    assert labelled.json("image", "show", "other")["labels"] == {"os": "none"}
    assert "changed other" in labelled.ok("image", "set", "other", "--no-label", "os")
    assert labelled.json("image", "show", "other")["labels"] == {}
    assert "nothing is to be changed" in labelled.fails("image", "set", "other")[1]
