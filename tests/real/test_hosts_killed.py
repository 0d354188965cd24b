"""Killed in the middle of something on one of several hosts: nothing is taken for nobody."""

import pytest

from millpond.records.journal import StepMoment
from tests.real.test_kill import moments
from tests.support.killer import kill_at

OURS = ("claim", "release")
"""The steps that only several hosts have; at the others nothing differs from a single one."""
VERBS = {
    "create": ("create", "victim", "raw"),
    "delete": ("delete", "web"),
    "grow": ("grow", "web", 3 * 1024**3),
    "disk add": ("add", "web", 1024**3),
    "disk remove": ("remove", "web", "disk.data0"),
}
CASES = [
    pytest.param(
        verb,
        step,
        moment,
        marks=() if step in OURS else pytest.mark.full,
        id=f"{verb}-{step}-{moment}",
    )
    for verb in VERBS
    for step, moment in moments(verb)
]


@pytest.fixture
def web(multi_host, micro_guest):
    multi_host.ok("image", "add", micro_guest.path, "--name", "raw")
    multi_host.ok("server", "create", "web", "--image", "raw", "--memory", "32M", "--no-start")
    multi_host.ok("server", "disk", "add", "web", "--size", "1G")
    return multi_host


@pytest.mark.parametrize(("verb", "step", "moment"), CASES)
def test_what_servers_take_is_right_after_mending(
    web, verb: str, step: str, moment: StepMoment
) -> None:
    kill_at(web, verb, step, moment, *VERBS[verb])
    web.run("doctor", "--mend")
    assert web.ok("doctor", "--placement").endswith("no problem\n")
    servers = {each.id for each in web.deployment().records.all()}
    assert web.taken_by() == servers
