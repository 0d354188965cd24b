"""A server's disk as a new image."""

import subprocess

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
    assert image["properties"] == {"hw_vif_model": "e1000"}
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


def test_what_a_guest_wrote_in_front_of_its_disk_is_not_followed(millpond, micro_guest, workdir):
    """Traps 2 and 3: a qcow2 header that names a file of the host, on a raw disk."""
    secret = workdir / "secret"
    secret.write_bytes(b"the content of a file of the host".ljust(MiB, b"!"))
    evil = workdir / "evil"
    words = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", secret, evil]
    subprocess.run(words, check=True)
    millpond.configure("images_type_mapping = raw:raw")
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    made = create(millpond, "web", "guest", "--no-start")
    disk = millpond.disks / made["disks"][0]["volume"]
    with open(disk, "r+b") as file:
        file.write(evil.read_bytes()[: 256 * 1024])
    before = secret.stat()
    subprocess.run(["virsh", "-c", millpond.uri, "pool-refresh", "nova-disks-pool"], check=True)

    millpond.ok("server", "snapshot", "web", "snap")
    millpond.ok("image", "save", "snap", workdir / "out.qcow2")
    flat = workdir / "out.raw"
    words = ["qemu-img", "convert", "-f", "qcow2", "-O", "raw", workdir / "out.qcow2", flat]
    subprocess.run(words, check=True)
    assert flat.read_bytes() == disk.read_bytes()
    assert b"a file of the host" not in flat.read_bytes()
    code, message = millpond.fails("server", "snapshot", "web", "raw", "--format", "raw")
    assert code == 5  # as raw it would be taken for qcow2 by the next who looks: refused
    assert "refused" in message
    millpond.ok("server", "start", "web")
    millpond.ok("server", "reboot", "web", "--hard")
    millpond.ok("server", "resize", "web", "--disk", "8M")
    after = secret.stat()
    assert (before.st_uid, before.st_mode) == (after.st_uid, after.st_mode)
    assert b"a file of the host" not in disk.read_bytes()


def test_a_snapshot_that_cannot_be_is_refused_and_leaves_nothing(millpond, guest):
    for code, sentence, words in (
        (3, "there is no server 'gone'", ("gone", "snap")),
        (4, "already an image named 'guest'", ("web", "guest")),
        (2, "cannot be the name of an image", ("web", "a/b")),
        (2, "cannot be compressed", ("web", "snap", "--format", "raw", "--compress")),
        (2, "vmdk is not possible", ("web", "snap", "--format", "vmdk")),
    ):
        found, message = millpond.fails("server", "snapshot", *words)
        assert (found, sentence in message) == (code, True), message
    millpond.ok("server", "start", "web")
    code, message = millpond.fails("server", "snapshot", "web", "snap")
    assert code == 4
    assert "needs it to be stopped" in message
    assert [each["name"] for each in millpond.json("image", "list")] == ["guest"]
    assert list((millpond.state / "images" / "incoming").iterdir()) == []
