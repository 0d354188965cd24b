"""A server's disk as a new image."""

import pytest

from millpond.model.sizes import MiB
from tests.support.millpond import converted


@pytest.fixture(params=["qcow2", "raw"])
def guest(request, millpond, micro_guest, workdir):
    """A server that has booted once and is off, on an overlay or on a raw copy."""
    millpond.configure("images_type_mapping = qcow2:qcow2, raw:raw")
    path = (
        converted(micro_guest, "qcow2", workdir) if request.param == "qcow2" else micro_guest.path
    )
    millpond.ok("image", "add", path, "--name", "guest", "--property", "hw_vif_model=e1000")
    made = create(millpond, "web", "guest")
    millpond.wait_for_console(made["id"], "READY")
    millpond.ok("server", "stop", "web", "--force")
    return request.param


def create(millpond, name, image, *options):
    words = ("--image", image, "--memory", "32M", "--network", "none")
    return millpond.json("server", "create", name, *words, *options)


@pytest.mark.parametrize(
    "options",
    [(), pytest.param(("--compress",), marks=pytest.mark.full), ("--format", "raw")],
    ids=["qcow2", "compressed", "raw"],
)
def test_a_snapshot_boots_where_the_server_was(millpond, guest, micro_guest, options):
    image = millpond.json("server", "snapshot", "web", "snap", *options)
    assert image["virtual_size"] == MiB
    hardware = millpond.server("web").hardware
    assert image["properties"] == {
        "hw_firmware_type": "bios",
        "hw_machine_type": hardware.machine,
        "hw_disk_bus": "virtio",
        "hw_vif_model": "e1000",
    }
    made = create(millpond, "again", "snap")
    text = millpond.wait_for_console(made["id"], "READY")
    assert micro_guest.marker in text
    assert "BOOTS 0002" in text
    millpond.ok("server", "start", "web")  # and the server goes on as before
    millpond.wait_for_console(millpond.server("web").id, "BOOTS 0002")


def test_a_snapshot_stands_alone(millpond, guest, workdir):
    millpond.ok("server", "snapshot", "web", "snap")
    millpond.ok("server", "delete", "web")
    millpond.ok("image", "remove", "guest")
    made = create(millpond, "again", "snap")
    millpond.wait_for_console(made["id"], "BOOTS 0002")


def test_a_snapshot_that_cannot_be_is_refused_and_leaves_nothing(millpond, guest):
    refuse_everything(millpond)
    assert millpond.json("server", "show", "web")["state"] == "stopped"
    millpond.ok("server", "start", "web")
    refuse_everything(millpond)
    assert millpond.json("server", "show", "web")["state"] == "running"
    assert [each["name"] for each in millpond.json("image", "list")] == ["guest"]
    assert list((millpond.state / "images" / "incoming").iterdir()) == []
    assert len(list(millpond.disks.iterdir())) == 2


def refuse_everything(millpond):
    for code, sentence, words in (
        (3, "there is no server 'gone'", ("gone", "snap")),
        (4, "already an image named 'guest'", ("web", "guest")),
        (2, "cannot be the name of an image", ("web", "a/b")),
        (2, "cannot be compressed", ("web", "snap", "--format", "raw", "--compress")),
        (2, "vmdk is not possible", ("web", "snap", "--format", "vmdk")),
    ):
        found, message = millpond.fails("server", "snapshot", *words)
        assert (found, sentence in message) == (code, True), message


def test_a_snapshot_has_the_hardware_of_its_server(millpond, micro_guest):
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    made = create(millpond, "ue", "guest", "--firmware", "uefi", "--no-start")
    assert made["hardware"]["firmware"] == "uefi"
    millpond.ok("server", "snapshot", "ue", "snap")
    again = create(millpond, "again", "snap", "--no-start")
    assert again["hardware"] == made["hardware"]
