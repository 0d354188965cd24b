"""Guests that restart themselves, in the QEMU that they have."""

import pytest


@pytest.fixture
def web(millpond, micro_guest):
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    words = ("--image", "guest", "--memory", "32M", "--network", "none")
    made = millpond.json("server", "create", "web", *words)
    millpond.wait_for_console(made["id"], "READY")
    return made


def test_the_guest_restarts_and_qemu_stays(millpond, web, connection):
    number = connection.lookupByName("web").ID()
    millpond.ok("server", "set", "web", "--description", "with its next start")
    said = millpond.ok("server", "reboot", "web", "--soft")
    assert said == f"rebooted web ({web['id'][:8]})\n"
    millpond.wait_for_console(web["id"], "BOOTS 0002")
    assert connection.lookupByName("web").ID() == number
    server = millpond.server("web")
    assert (server.operation, server.should_run) == (None, True)
    millpond.ok("server", "reboot", "web")  # a new one
    millpond.wait_for_console(web["id"], "BOOTS 0003")
    assert connection.lookupByName("web").ID() != number
    assert "no problem" in millpond.ok("doctor")


def test_who_does_not_restart_goes_on(millpond, web, connection, workdir):
    blank = workdir / "blank.raw"
    blank.write_bytes(bytes(1024**2))
    millpond.ok("image", "add", blank, "--name", "blank")
    words = ("--image", "blank", "--memory", "32M", "--network", "none")
    millpond.ok("server", "create", "deaf", *words)
    code, message = millpond.fails("server", "reboot", "deaf", "--soft", "--timeout", "2")
    assert (code, "has not restarted within 2 s" in message) == (4, True), message
    assert millpond.json("server", "show", "deaf")["state"] == "running"
    millpond.ok("server", "stop", "deaf", "--force")
    code, message = millpond.fails("server", "reboot", "deaf", "--soft")
    assert (code, "is stopped; this needs it to be running" in message) == (4, True), message
    assert millpond.json("server", "show", "deaf")["state"] == "stopped"
    code, message = millpond.fails("server", "reboot", "web", "--soft", "--hard")
    assert (code, "exclude each other" in message) == (2, True), message
