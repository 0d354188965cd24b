"""A server moves between hosts of one cluster: its root disk stays where it is."""

import pytest

from tests.ceph.test_hosts import in_ceph  # noqa: F401
from tests.real.test_migrate_daemons import wait_until_booted
from tests.support.ceph import Ceph
from tests.support.multi_host import MultiHost
from tests.support.qemus import watching_qemus


@pytest.fixture
def sharing(in_ceph: MultiHost) -> MultiHost:  # noqa: F811
    in_ceph.ok("host", "list", "--refresh")
    return in_ceph


@pytest.mark.full
def test_a_disk_in_ceph_does_not_travel(sharing: MultiHost, ceph: Ceph) -> None:
    words = ("--image", "raw", "--memory", "32M", "--host", "alder", "--config-drive")
    sharing.ok("server", "create", "web", *words)
    server = sharing.deployment().server("web")
    with watching_qemus(server.id) as seen:
        wait_until_booted(sharing, "web")
        stop = ("--stop", "--timeout", "30")
        told = sharing.json("server", "migrate", "web", "--host", "birch", *stop)
        assert {each["role"]: each["way"] for each in told["disks"]} == {
            "disk": "shared",
            "disk.config": "copy",
        }
        wait_until_booted(sharing, "web", 2)
    assert len(seen) == 2
    host, moved = sharing.deployment().find("web")
    assert (host.name, moved.disks[0].pool) == ("birch", "nova-disks-pool-rbd")
    assert sharing.taken_by() == {server.id}
    assert sharing.ok("doctor", "--placement").endswith("no problem\n")
    sharing.ok("server", "delete", "web")


@pytest.mark.full
def test_a_host_without_the_pool_is_refused(sharing: MultiHost) -> None:
    sharing.ok("server", "create", "web", "--image", "raw", "--memory", "32M", "--host", "alder")
    lines = sharing.config.read_text().splitlines()
    birch = lines.index("[host:birch]")
    end = lines.index("[host:cedar]")
    kept = [each for each in lines[birch:end] if "rbd" not in each]
    sharing.config.write_text("\n".join([*lines[:birch], *kept, *lines[end:]]) + "\n")
    status, message = sharing.fails("server", "migrate", "web", "--host", "birch", "--stop")
    assert (status, "no pool for rbd disks" in message) == (6, True), message
    assert sharing.json("server", "show", "web")["state"] == "running"
    sharing.ok("server", "delete", "web")
