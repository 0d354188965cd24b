"""The libvirtd of a server's host dies at any step of what is done to its disks or its guest:
whoever comes then finishes or undoes it. Moves: test_migrate_daemons and test_live_daemons."""

import re
from contextlib import suppress

import pytest

from millpond.errors import MillpondError
from millpond.hosts.deployment import Deployment
from millpond.records.journal import StepMoment
from tests.support.killer import ACTIONS
from tests.support.millpond import converted
from tests.support.verbs import steps_of
from tests.support.waiting import wait_for

LARGER = "server resize web --disk 2M --vcpus 2 --revertable"
STOP = "server stop web --force"
BEFORE = {
    "pause": (),
    "unpause": ("server pause web",),
    "resize": (STOP,),
    "resize save": (STOP,),
    "resize confirm": (STOP, LARGER),
    "resize revert": (STOP, LARGER),
    "rebuild": (),
    "rescue": (),
    "unrescue": ("server rescue web --image other --force",),
    "stop": (),
    "start": (STOP,),
    "reboot": (),
}
WORDS = {"rebuild": ("other",), "rescue": ("other",)}
DEATHS = [
    pytest.param(verb, step, moment, id=f"{verb}-{step}-{moment}")
    for verb in BEFORE
    for step in steps_of(verb)
    for moment in StepMoment
]


@pytest.fixture
def hosts(multi_host, micro_guest, workdir):
    """web runs on alder, and counts its boots on a raw disk."""
    mapping = "images_type_mapping = raw:raw, qcow2:qcow2"
    instances = f"instances_path = {multi_host.directory}/instances"
    multi_host.configure(multi_host.place_locally(mapping), default=instances)
    multi_host.ok("image", "add", micro_guest.path, "--name", "guest")
    multi_host.ok("image", "add", converted(micro_guest, "qcow2", workdir), "--name", "other")
    words = ("--image", "guest", "--memory", "32M", "--network", "none", "--host", "alder")
    multi_host.ok("server", "create", "web", *words)
    wait_for(lambda: boots(multi_host) == [1], 60)
    return multi_host


def boots(hosts):
    host, server = hosts.deployment().find("web")
    said = host.consoles.read(server.id, server.name).decode(errors="replace")
    return [int(each) for each in re.findall(r"BOOTS (\d{4})", said)]


@pytest.mark.full
@pytest.mark.parametrize(("verb", "step", "moment"), DEATHS)
def test_a_libvirtd_that_dies_anywhere_costs_nothing(hosts, verb, step, moment):
    for words in BEFORE[verb]:
        hosts.ok(*words.split())
    daemon = hosts.hosts["alder"]

    def watch(*where):
        if where == (verb, step, moment) and daemon.is_running:
            daemon.kill()

    with suppress(MillpondError):
        ACTIONS[verb](Deployment.load([hosts.config], watch), "web", *WORDS.get(verb, ()))
    assert not daemon.is_running
    daemon.start()
    hosts.run("doctor", "--repair")
    assert hosts.run("doctor").stdout.endswith("no problem\n")
    server = hosts.deployment().server("web")
    assert server.operation is None
    named = {each.volume for each in server.disks}
    found = {each.name for each in (hosts.directory / "alder/disks").iterdir()}
    assert named <= found
    assert len(found - named) <= bool(server.resized_from), found
    assert hosts.taken_by() == {server.id}
    if server.is_rescued:
        hosts.ok("server", "unrescue", "web", "--force")
    hosts.ok("server", "stop", "web", "--force")
    before = boots(hosts)
    hosts.ok("server", "start", "web")
    wait_for(lambda: len(boots(hosts)) > len(before), 60)
    is_rebuilt = hosts.deployment().server("web").image.name == "other"
    assert is_rebuilt or boots(hosts)[-1] > 1, "it lost what it had written"
