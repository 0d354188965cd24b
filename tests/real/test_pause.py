"""Guests that are paused, and run on."""

import time

import pytest

from millpond.records.journal import StepMoment
from tests.support.guest_ticks import last_tick, wait_for_ticks
from tests.support.killer import kill_at

ROOM = ("--image", "guest", "--memory", "32M", "--network", "none")


@pytest.fixture
def web(millpond, micro_guest):
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    made = millpond.json("server", "create", "web", *ROOM)
    millpond.wait_for_console(made["id"], "TICK")
    return made["id"]


def state(millpond):
    return millpond.json("server", "show", "web")["state"]


def test_a_paused_guest_does_nothing_until_it_is_unpaused(millpond, web):
    assert millpond.ok("server", "pause", "web") == f"paused web ({web[:8]})\n"
    assert millpond.ok("server", "pause", "web") == f"web ({web[:8]}) is paused already\n"
    before = last_tick(millpond, web)
    time.sleep(2.5)
    assert last_tick(millpond, web) == before
    assert millpond.json("server", "list")[0]["state"] == "paused"
    code, message = millpond.fails("server", "stop", "web")
    assert (code, "it is paused" in message) == (4, True)
    assert "before 'millpond server unpause web'" in message
    assert "'millpond server unpause' lets it run on" in millpond.ok("server", "start", "web")
    assert "no problem" in millpond.ok("doctor")
    assert millpond.json("server", "unpause", "web")["state"] == "running"
    wait_for_ticks(millpond, web)
    assert millpond.console(web).count("BOOTS") == 1
    assert millpond.ok("server", "unpause", "--all") == f"web ({web[:8]}) runs already\n"


def test_a_server_that_is_off_is_not_paused(millpond, web):
    millpond.ok("server", "create", "db", *ROOM)
    millpond.ok("server", "stop", "web", "--force")
    for verb in ("pause", "unpause"):
        code, message = millpond.fails("server", verb, "web")
        assert (code, "is stopped; this needs it to be" in message) == (4, True)
        assert millpond.fails("server", verb, "nosuch")[0] == 3
        assert millpond.fails("server", verb)[0] == 2
    code, message = millpond.fails("server", "pause", "web", "db")
    assert (code, "'web' is stopped" in message) == (4, True)
    states = {each["name"]: each["state"] for each in millpond.json("server", "list")}
    assert states == {"web": "stopped", "db": "paused"}


@pytest.mark.parametrize(
    ("verb", "step", "moment", "becomes"),
    [
        ("pause", "pause", StepMoment.BEGIN, "running"),
        ("pause", "pause", StepMoment.END, "paused"),
        ("unpause", "resume", StepMoment.BEGIN, "paused"),
        ("unpause", "resume", StepMoment.END, "running"),
    ],
)
def test_killed_it_is_as_the_guest_is(millpond, web, verb, step, moment, becomes):
    if verb == "unpause":
        millpond.ok("server", "pause", "web")
    kill_at(millpond, verb, step, moment, verb, "web")
    assert state(millpond) == f"interrupted ({verb}: {step})"
    millpond.ok("doctor", "--repair")
    assert state(millpond) == becomes
