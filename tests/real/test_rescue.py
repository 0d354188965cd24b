"""Servers that are booted from another image, with their own root disk as one disk more."""

import libvirt
import pytest
from lxml import etree

from millpond.records.journal import StepMoment
from tests.support.guests import build_micro_guest
from tests.support.killer import kill_at
from tests.support.verbs import steps_of
from tests.support.waiting import wait_for

TELLING = (
    ("rescue", "domain", "end"),
    ("rescue", "start", "end"),
    ("unrescue", "stop", "end"),
    ("unrescue", "remove", "begin"),
)
MOMENTS = [
    pytest.param(
        verb, step, moment, marks=() if (verb, step, moment) in TELLING else pytest.mark.full
    )
    for verb in ("rescue", "unrescue")
    for step in steps_of(verb)
    for moment in StepMoment
]


@pytest.fixture
def pond(millpond, micro_guest, workdir):
    """A server that runs, and another guest, which says so."""
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    other = build_micro_guest(workdir / "rescuer.raw", marker="RESCUER")
    millpond.ok("image", "add", other.path, "--name", "rescuer")
    words = ("--image", "guest", "--memory", "32M", "--network", "none")
    made = millpond.json("server", "create", "web", *words)
    millpond.wait_for_console(made["id"], "BOOTS 0001")
    return millpond


def definition(connection):
    """But for our copy of the record, which names what it was last written with."""
    domain = connection.lookupByName("web")
    xml = etree.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    xml.remove(xml.find("metadata"))
    return etree.tostring(xml, method="c14n")


def volumes(millpond):
    found = sorted(each.name for each in millpond.disks.iterdir())
    assert found == sorted(each.volume for each in millpond.server("web").disks)
    return found


def booted(millpond, marker, times):
    """The guest of this marker, so many times in all."""
    id = millpond.server("web").id
    wait_for(lambda: millpond.console(id).count(marker) >= times, 30)


def test_rescued_and_restored(pond, connection, libvirtd, micro_guest):
    before, record, disks = definition(connection), pond.server("web"), volumes(pond)
    said = pond.ok("server", "rescue", "web", "--image", "rescuer", "--force")
    assert said == f"rescued web ({record.id[:8]}) by rescuer; its root disk is vdc\n"
    booted(pond, "RESCUER", 1)
    xml = etree.fromstring(connection.lookupByName("web").XMLDesc())
    placed = {
        each.find("target").get("dev"): each.findtext("serial")
        for each in xml.findall("devices/disk")
    }
    assert placed == {"vda": "disk.rescue", "vdb": "disk.config", "vdc": "disk"}
    shown = pond.json("server", "show", "web")
    assert (shown["state"], shown["rescued"]) == ("running", True)
    assert "running, rescued" in pond.ok("server", "list")
    # Rescued it stays: over stop and start, and a reboot of the host.
    pond.ok("server", "stop", "web", "--force")
    pond.ok("server", "start", "web")
    booted(pond, "RESCUER", 2)
    libvirtd.reboot()
    booted(pond, "RESCUER", 3)
    assert "no problem" in pond.ok("doctor")
    for status, said, *words in (
        (4, "is in rescue", "rescue", "web"),
        (4, "is in rescue", "rebuild", "web"),
        (4, "is in rescue", "snapshot", "web", "copy"),
    ):
        code, message = pond.fails("server", *words)
        assert (code, said in message) == (status, True), message
    assert pond.fails("image", "remove", "rescuer")[0] == 4
    assert pond.ok("server", "unrescue", "web", "--force").startswith("unrescued web")
    again = libvirt.open(pond.uri)  # the libvirtd before has ended
    assert (definition(again), pond.server("web"), volumes(pond)) == (before, record, disks)
    booted(pond, micro_guest.marker, 2)
    assert "no problem" in pond.ok("doctor")
    code, message = pond.fails("server", "unrescue", "web")
    assert (code, "is not in rescue" in message) == (4, True)


def test_its_own_image_is_the_default_and_one_that_is_off_is_started(pond):
    pond.ok("server", "stop", "web", "--force")
    rescued = pond.json("server", "rescue", "web")
    assert (rescued["state"], rescued["disks"][-1]["image"]["name"]) == ("running", "guest")
    pond.ok("server", "stop", "web", "--force")
    assert pond.json("server", "unrescue", "web")["state"] == "stopped"
    assert pond.fails("server", "rescue", "web", "--image", "nosuch")[0] == 3
    assert pond.fails("server", "rescue", "nosuch")[0] == 3
    pond.ok("server", "rescue", "web")
    pond.ok("server", "delete", "web")
    assert list(pond.disks.iterdir()) == []


@pytest.mark.parametrize(("verb", "step", "moment"), MOMENTS)
def test_killed_it_is_rescued_or_it_is_not(pond, connection, micro_guest, verb, step, moment):
    before = definition(connection)
    words = ("rescuer",) if verb == "rescue" else ()
    if verb == "unrescue":
        pond.ok("server", "rescue", "web", "--image", "rescuer", "--force")
    kill_at(pond, verb, step, moment, verb, "web", *words)
    pond.ok("doctor", "--repair")
    server = pond.server("web")
    assert server.operation is None
    volumes(pond)
    assert pond.json("server", "show", "web")["state"] == "running"
    names = steps_of(verb)
    done = names.index(step) > names.index("start") or (step, moment) == ("start", "end")
    assert server.is_rescued == (done if verb == "rescue" else not done)
    if server.is_rescued:
        booted(pond, "RESCUER", 1)
        pond.ok("server", "unrescue", "web", "--force")
    assert definition(connection) == before
    times = pond.console(server.id).count(micro_guest.marker)
    pond.ok("server", "reboot", "web", "--hard")
    booted(pond, micro_guest.marker, times + 1)
    assert "no problem" in pond.ok("doctor")
