"""Whole names for what changes something, several of them, and what is said and asked."""

import json
import os
import pty
import subprocess

import pytest

from tests.support.millpond import COMMAND
from tests.support.terminal import open_terminal
from tests.support.waiting import wait_for

SMALL = ("--memory", "16M", "--network", "none", "--no-start")


@pytest.fixture
def guest(millpond, micro_guest):
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    return millpond


def create(millpond, name, *words):
    return millpond.json("server", "create", name, "--image", "guest", *SMALL, *words)


def names(millpond):
    return {each["name"] for each in millpond.json("server", "list")}


def test_a_script_that_deletes_twice_deletes_nothing_else(guest):
    """A name that is gone may be how the id of another server begins."""
    for letter in "abcdef0123456789":
        create(guest, letter)
    kept = create(guest, "kept")
    for letter in "abcdef0123456789":
        assert guest.ok("server", "delete", letter).startswith(f"deleted {letter} (")
    for text in (*"abcdef0123456789", kept["id"][:1], kept["id"][:8], kept["id"][:-1], ""):
        status, message = guest.fails("server", "delete", text)
        assert (status, f"there is no server {text!r}" in message) == (3, True)
    assert names(guest) == {"kept"}
    assert "begins so" in guest.fails("server", "delete", kept["id"][:8])[1]
    assert guest.json("server", "delete", kept["id"]) == {"id": kept["id"], "name": "kept"}


@pytest.mark.parametrize("verb", ["start", "stop", "reboot", "resize", "snapshot"])
def test_no_other_verb_that_changes_something_takes_a_part_of_an_id(guest, verb):
    made = create(guest, "web")
    more = {"resize": ("--disk", "2G"), "snapshot": ("image",)}.get(verb, ())
    assert guest.fails("server", verb, made["id"][:8], *more)[0] == 3


def test_an_image_is_removed_and_used_by_its_whole_name(guest):
    (image,) = guest.json("image", "list")
    part = image["id"][:8]
    assert guest.fails("image", "remove", part)[0] == 3
    assert guest.fails("server", "create", "web", "--image", part)[0] == 3
    assert guest.json("image", "show", part)["name"] == "guest"
    assert guest.fails("image", "show", part[:7])[0] == 3


def test_several_at_once_are_looked_up_before_anything_is_done(guest):
    for name in ("a", "b"):
        create(guest, name)
    assert guest.fails("server", "start", "a", "nosuch", "b")[0] == 3
    assert {each["state"] for each in guest.json("server", "list")} == {"stopped"}
    said = guest.ok("server", "start", "a", "b", "a").splitlines()
    assert [each.split(" (")[0] for each in said] == ["started a", "started b"]
    assert [each["name"] for each in guest.json("server", "show", "b", "a")] == ["b", "a"]
    assert "runs already" in guest.ok("server", "start", "a")


def test_all_means_those_that_it_is_for(guest):
    for name in ("a", "b", "c"):
        create(guest, name)
    assert [each["name"] for each in guest.json("server", "start", "a", "b")] == ["a", "b"]
    assert {each["name"] for each in guest.json("server", "stop", "--all", "--force")} == {
        "a",
        "b",
    }
    assert guest.ok("server", "stop", "--all") == ""
    assert len(guest.ok("server", "start", "--all").splitlines()) == 3
    assert len(guest.json("server", "show", "--all")) == 3
    for words in ((), ("a", "--all")):
        assert guest.fails("server", "stop", *words)[0] == 2


def test_of_several_all_are_tried_and_the_first_error_decides(guest, connection):
    for name in ("a", "b"):
        create(guest, name)
    for each in guest.json("server", "start", "a", "b"):
        guest.wait_for_console(each["id"], "READY")
    connection.lookupByName("a").suspend()
    status, message = guest.fails("server", "stop", "a", "b", "--timeout", "20")
    assert status == 4
    assert "it is paused" in message
    states = {each["name"]: each["state"] for each in guest.json("server", "list")}
    assert states == {"a": "paused", "b": "stopped"}


@pytest.mark.parametrize(("answer", "left"), [("n", {"web"}), ("y", set())])
def test_on_a_terminal_it_asks_before_it_deletes_what_runs(guest, answer, left):
    create(guest, "web")
    guest.ok("server", "start", "web")
    said, status = on_terminal(guest, answer, "server", "delete", "web")
    assert "web (" in said
    assert "running" in said
    assert "Delete? [y/N]" in said
    assert names(guest) == left
    assert (status == 0) is not left


def test_it_asks_where_data_goes_and_not_otherwise(guest):
    create(guest, "plain")
    create(guest, "data")
    guest.ok("server", "disk", "add", "data", "--size", "2M")
    assert "[y/N]" not in on_terminal(guest, "", "server", "delete", "plain")[0]
    assert "has data disks of 2 MiB" in on_terminal(guest, "n", "server", "delete", "data")[0]
    assert "[y/N]" not in on_terminal(guest, "", "server", "delete", "data", "--yes")[0]
    assert names(guest) == set()


def test_what_was_asked_about_is_removed_whoever_has_its_place_by_then(guest):
    create(guest, "web")
    asked = guest.ok("server", "disk", "add", "web", "--size", "2M").split()[1].strip("()\n")
    words = [COMMAND, "--config-file", guest.config, "server", "disk", "remove", "web", asked]
    with open_terminal(words) as terminal:
        terminal.wait_for("Remove disk.data0 of web, 2 MiB")
        guest.ok("server", "disk", "detach", "web", "disk.data0")
        assert (
            guest.ok("server", "disk", "add", "web", "--size", "3M") == f"disk.data1 ({asked})\n"
        )
        terminal.type("y\n")
        assert terminal.finish() == 0
    left = {each.role: each.target for each in guest.server("web").disks}
    assert ("disk.data0" in left, left["disk.data1"]) == (False, asked)


def test_on_a_terminal_the_list_fits_by_short_ids(guest):
    create(guest, "web")
    id = guest.server("web").id
    with open_terminal([COMMAND, "--config-file", guest.config, "server", "list"]) as terminal:
        assert terminal.finish() == 0
    assert (id[:8] in terminal.shown, id in terminal.shown) == (True, False)
    assert id in guest.ok("server", "list")


def on_terminal(millpond, answer, *words):
    """What a person sees who types the command, and its status."""
    here, there = pty.openpty()
    running = subprocess.Popen(
        [COMMAND, "--config-file", millpond.config, *words],
        stdin=there,
        stdout=there,
        stderr=there,
        start_new_session=True,
    )
    os.close(there)
    said = bytearray()

    def ended():
        try:
            said.extend(os.read(here, 4096))
        except OSError:  # EIO: nobody has it open any more
            return True
        if said.rstrip().endswith(b"[y/N]:") and answer:
            os.write(here, f"{answer}\n".encode())
        return False

    wait_for(ended, 60)
    os.close(here)
    return said.decode(), running.wait(timeout=20)


@pytest.mark.parametrize(
    ("option", "text", "sentence"),
    [
        ("--memory", "512", "'512' is not a size"),
        ("--memory", "2M", "no guest boots with less than 16 MiB"),
        ("--memory", "0", "no guest boots with less than 16 MiB"),
        ("--disk", "5", "'5' is not a size"),
        ("--swap", "64", "'64' is not a size"),
    ],
)
def test_sizes_have_units_and_guests_have_memory(guest, option, text, sentence):
    status, message = guest.fails(
        "server", "create", "web", "--image", "guest", "--network", "none", option, text
    )
    assert (status, sentence in message) == (2, True), message
    assert json.loads(guest.ok("server", "list", "--json")) == []
