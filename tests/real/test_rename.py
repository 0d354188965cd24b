"""Servers and images under another name."""

import pytest

from tests.support.image_files import iso_file

ROOM = ("--image", "guest", "--memory", "32M", "--network", "none")


@pytest.fixture
def web(millpond, micro_guest):
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    return millpond.json("server", "create", "web", *ROOM)


def test_a_server_that_is_off_is_renamed_with_its_domain(millpond, web, connection):
    code, message = millpond.fails("server", "rename", "web", "db")
    assert (code, "stop it first" in message) == (5, True)
    millpond.wait_for_console(web["id"], "READY")
    millpond.ok("server", "stop", "web", "--force")
    assert millpond.ok("server", "rename", "web", "db") == "renamed web to db\n"
    assert connection.lookupByUUIDString(web["id"]).name() == "db"
    assert [each["name"] for each in millpond.json("server", "list")] == ["db"]
    millpond.ok("server", "start", "db")
    millpond.wait_for_console(web["id"], "BOOTS 0002")
    assert "no problem" in millpond.ok("doctor")
    before = millpond.server("db")
    (millpond.state / "servers" / f"{web['id']}.json").unlink()
    millpond.ok("doctor", "--adopt")
    assert millpond.server("db") == before
    millpond.ok("server", "create", "web", *ROOM, "--no-start")


def test_a_name_that_cannot_be_is_refused(millpond, web):
    millpond.ok("server", "create", "db", *ROOM, "--no-start")
    assert millpond.fails("server", "rename", "db", "web")[0] == 4
    assert millpond.fails("server", "rename", "db", "../x")[0] == 2
    assert millpond.fails("server", "rename", "nosuch", "x")[0] == 3
    assert millpond.json("server", "rename", "db", "db")["name"] == "db"
    assert {each["name"] for each in millpond.json("server", "list")} == {"web", "db"}


def test_an_image_is_renamed_and_found(millpond, web, workdir):
    millpond.ok("image", "add", iso_file(workdir), "--name", "disc")
    assert millpond.fails("image", "rename", "guest", "disc")[0] == 4
    assert millpond.fails("image", "rename", "guest", "a/b")[0] == 2
    assert millpond.ok("image", "rename", "guest", "debian-12") == "renamed guest to debian-12\n"
    assert millpond.json("image", "show", "debian-12")["servers"] == ["web"]

    def listed(*words):
        return [each["name"] for each in millpond.json("image", "list", *words)]

    assert listed() == ["debian-12", "disc"]
    assert listed("--name", "deb*") == ["debian-12"]
    assert listed("--format", "iso") == ["disc"]
    assert listed("--format", "iso", "--name", "deb*") == []
    assert millpond.fails("image", "list", "--format", "floppy")[0] == 2
