"""One host, four kinds of images, each in the storage that its format maps to."""

import pytest

from tests.ceph.conftest import rbd_options
from tests.support.millpond import Millpond, converted

PLACES = {
    "raw": ("raw", "nova-disks-pool", "raw"),
    "ploop": ("ploop", "nova-disks-pool", "ploop"),
    "qcow2": ("rbd", "nova-disks-pool-rbd", "raw"),
    "vmdk": ("qcow2", "nova-disks-pool", "qcow2"),
}
"""Backend, pool and format of the root disk by the image's format; vmdk is not in the mapping."""


@pytest.fixture
def mixed(millpond: Millpond, ceph, rbd_pool, micro_guest, workdir) -> Millpond:
    mapping = "images_type_mapping = raw:raw, ploop:ploop, qcow2:rbd"
    options = rbd_options(ceph, rbd_pool)
    millpond.configure("\n".join(["images_type = qcow2", mapping, *options]))
    for format in PLACES:
        tool = {"ploop": "parallels"}.get(format, format)
        path = converted(micro_guest, tool, workdir)
        millpond.ok("image", "add", path, "--disk-format", format, "--name", format)
    return millpond


def create(millpond, format):
    words = ("--image", format, "--memory", "32M", "--network", "none")
    return millpond.json("server", "create", format, *words)


def test_each_image_runs_in_its_place_and_a_new_mapping_moves_nothing(
    mixed, ceph, rbd_pool, micro_guest
):
    made = {format: create(mixed, format) for format in PLACES}
    for format, server in made.items():
        assert micro_guest.marker in mixed.wait_for_console(server["id"], "READY", 60)
        shown = mixed.ok("server", "show", format)
        assert all(word in shown for word in PLACES[format]), shown
    assert {each["state"] for each in mixed.json("server", "list")} == {"running"}

    options = rbd_options(ceph, rbd_pool)
    mixed.configure("\n".join(["images_type = raw", "images_type_mapping = raw:qcow2", *options]))
    for format, server in made.items():
        mixed.ok("server", "reboot", format, "--hard")
        mixed.wait_for_console(server["id"], "BOOTS 0002", 60)
        (disk, _) = mixed.json("server", "show", format)["disks"]
        assert (disk["backend"], disk["pool"], disk["format"]) == PLACES[format]  # B13
    mixed.ok("server", "delete", *made)
    assert list(mixed.disks.iterdir()) == []
