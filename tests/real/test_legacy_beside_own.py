"""Nova's directory where Millpond has servers of its own, configured as the page shows."""

import re
from pathlib import Path

import pytest

from tests.support.millpond import converted
from tests.support.nova_tree import NovaServer, disk_xml
from tests.support.waiting import wait_for

PAGE = Path(__file__).parents[2] / "docs" / "legacy.md"


def configuration(millpond, instances):
    """As it stands there, with the paths of this test."""
    (text,) = re.findall(r"```ini\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for theirs, ours in (
        ("/var/lib/nova/instances", str(instances)),
        ("/var/lib/millpond/instances/disks", str(millpond.disks)),
        ("[DEFAULT]\n", f"[DEFAULT]\nstate_path = {millpond.state}\n"),
        ("[libvirt]\n", f"[libvirt]\nconnection_uri = {millpond.uri}\nvirt_type = qemu\n"),
    ):
        assert theirs in text
        text = text.replace(theirs, ours)
    return text


def problems(millpond):
    found = millpond.json("doctor")
    return [each["what"] for each in found if each["level"] in ("problem", "unknown")]


@pytest.mark.parametrize("format", ["qcow2", "raw"])
def test_servers_of_both_are_served(millpond, connection, micro_guest, workdir, format):
    image = converted(micro_guest, "qcow2", workdir)
    millpond.ok("image", "add", image, "--name", "guest")
    words = ("--image", "guest", "--memory", "32M", "--network", "none")
    own = millpond.json("server", "create", "own", *words)
    millpond.wait_for_console(own["id"], "READY")
    instances = workdir / "nova"
    instances.mkdir()
    nova = NovaServer(instances=instances)
    disk = nova.overlay(micro_guest.path) if format == "qcow2" else nova.flat(micro_guest.path)
    domain = connection.defineXML(nova.domain(disk_xml(disk, format)))
    domain.create()
    wait_for(lambda: "READY" in nova.console(), 30)

    millpond.config.write_text(configuration(millpond, instances))
    assert millpond.json("server", "adopt", nova.id, "--yes")["state"] == "running"
    assert problems(millpond) == []
    millpond.ok("server", "reboot", "own", "--hard")
    wait_for(lambda: "READY" in (instances / own["id"] / "console.log").read_text(), 30)
    millpond.ok("server", "create", "third", *words)
    assert problems(millpond) == []
    millpond.ok("server", "delete", "own", "third", "web", "--yes")
    assert not list(millpond.disks.iterdir())
