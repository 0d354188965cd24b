"""Servers and images under another name."""

import pytest

from millpond.records.journal import StepMoment
from tests.support.image_files import iso_file
from tests.support.killer import kill_at

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


@pytest.mark.parametrize("moment", [StepMoment.BEGIN, StepMoment.END])
def test_killed_and_started_meanwhile_it_can_be_stopped_and_is_renamed(
    millpond, web, connection, moment
):
    """As after a power failure, when libvirt starts what should run."""
    millpond.ok("server", "stop", "web", "--force")
    kill_at(millpond, "rename", "domain", moment, "rename", "web", "db")
    connection.lookupByUUIDString(web["id"]).create()
    assert "stop it first" in millpond.run("doctor", "--repair").stdout
    assert "in the middle" in millpond.fails("server", "start", "db")[1]
    millpond.ok("server", "stop", "db", "--force")
    millpond.ok("doctor", "--repair")
    assert connection.lookupByUUIDString(web["id"]).name() == "db"
    assert "no problem" in millpond.ok("doctor")
    assert millpond.server("db").operation is None


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
