"""B48: one clear sentence with a hint, a status that is not 0, and nothing changed. What a person
types is walked through in test_bad_input_table.py; here is what needs a world of its own."""

import itertools
import os
import subprocess
from contextlib import suppress
from dataclasses import replace

import pytest

from millpond.model.sizes import MiB
from tests.support.millpond import converted


@pytest.fixture
def guest(millpond, micro_guest, workdir):
    millpond.configure("images_type_mapping = qcow2:qcow2, raw:raw")
    millpond.ok("image", "add", converted(micro_guest, "qcow2", workdir), "--name", "guest")
    return "guest"


def create(name="new", image="guest", *options):
    return ("server", "create", name, "--image", image, "--memory", "32M", *options)


@pytest.fixture
def one_server(millpond, guest):
    """So that the pools are there and the world does not change by making them."""
    millpond.ok(*create("first", guest, "--no-start"))


def test_an_unknown_image(refuses, one_server):
    refuses(3, "there is no image 'gone'", *create(image="gone"))


@pytest.mark.parametrize("name", ["a/b", "", "-x", ".", "..", "a\nb", " x", "x" * 300])
def test_a_name_that_cannot_be_one(refuses, one_server, name):
    refuses(
        2, "cannot be the name of a server", "server", "create", "--image", "guest", "--", name
    )


@pytest.mark.parametrize("name", ["x" * 300, "é" * 130], ids=["letters", "bytes"])
def test_an_argument_that_is_too_long_for_a_file(refuses, one_server, name):
    for words in (("show", name), ("delete", name), ("resize", name, "--disk", "1G")):
        refuses(3, "there is no server", "server", *words)
    for words in (("show", name), ("remove", name)):
        refuses(3, "there is no image", "image", *words)
    for verb in ("pin", "unpin", "verify"):
        refuses(3, "there is no template", "cache", verb, name)
    refuses(2, "File name too long", "image", "save", "guest", f"/tmp/{name}")


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--disk", "10X", "'10X' is not a size"),
        ("--memory", "lots", "'lots' is not a size"),
        ("--network", "bridge:", "'bridge:' is no network"),
        ("--network", "a\x01b", "is no network"),
        ("--disk", "9" * 400, "is not a size"),
        ("--flavor", "huge", "there is no flavour 'huge'"),
    ],
)
def test_an_option_that_means_nothing(refuses, one_server, option, value, sentence):
    refuses(2, sentence, *create("new", "guest", option, value))


def test_an_unknown_server(refuses, one_server):
    for verb in ("show", "start", "stop", "reboot", "delete", "console"):
        refuses(3, "there is no server 'gone'", "server", verb, "gone")


# Images


def unsafe(workdir, kind):
    path = workdir / f"{kind}.qcow2"
    if kind == "data-file":
        options = ["-o", f"data_file={workdir / 'passwd.data'},data_file_raw=on"]
        words = ["qemu-img", "create", "-q", "-f", "qcow2", *options, str(path), "1M"]
        subprocess.run(words, check=True)
        return path
    backing = {
        "backing": "/etc/passwd",
        "json": 'json:{"driver":"file","filename":"/etc/passwd"}',
        "itself": str(path),
    }[kind]
    words = ["qemu-img", "create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", backing]
    subprocess.run([*words, str(workdir / "made"), "1M"], check=True)
    return (workdir / "made").rename(path)


@pytest.mark.parametrize("kind", ["backing", "data-file", "json", "itself"])
def test_an_unsafe_qcow2(refuses, one_server, workdir, kind):
    """B46"""
    refuses(5, "is refused", "image", "add", unsafe(workdir, kind), hint=False)


def test_a_mislabelled_vmdk(refuses, one_server, micro_guest, workdir):
    path = converted(micro_guest, "qcow2", workdir).rename(workdir / "lies.vmdk")
    refuses(5, "is refused", "image", "add", path, hint=False)


def test_a_truncated_image(refuses, one_server, micro_guest, workdir):
    path = converted(micro_guest, "qcow2", workdir).rename(workdir / "short.qcow2")
    os.truncate(path, 200_000)
    refuses(5, "is refused", "image", "add", path, hint=False)


# Pools and space


def test_a_pool_directory_that_is_missing(refuses, one_server, millpond):
    os.rename(millpond.disks, millpond.disks.with_name("away"))
    refuses(6, f"its directory {millpond.disks} is missing", *create())


def test_a_base_directory_that_is_missing(refuses, one_server, millpond, micro_guest):
    millpond.ok("image", "add", micro_guest.path, "--name", "other")
    os.rename(millpond.bases, millpond.bases.with_name("away"))
    refuses(6, "nova-base-images-pool", *create(image="other"))


def test_an_inactive_pool(millpond, one_server, connection):
    """B27: somebody stopped it; it is not started behind their back."""
    pool = connection.storagePoolLookupByName("nova-disks-pool")
    pool.destroy()
    code, message = millpond.fails(*create())
    assert code == 6
    assert "'nova-disks-pool' is defined but not active" in message
    assert "virsh pool-start" in message
    assert not pool.isActive()
    assert [each["name"] for each in millpond.json("server", "list")] == ["first"]


@pytest.fixture
def small_disks(millpond, make_filesystem):
    small = make_filesystem("ext4", 32 * MiB)
    (small.path / "disks").mkdir()
    millpond.configure(f"images_type_mapping = raw:raw\ndisks_pool_path = {small.path / 'disks'}")
    return small.path / "disks"


def test_no_space_for_the_disk(refuses, millpond, small_disks, micro_guest, workdir):
    big = workdir / "big.raw"
    big.write_bytes(micro_guest.path.read_bytes() + os.urandom(40 * MiB))
    millpond.ok("image", "add", micro_guest.path, "--name", "small")
    millpond.ok("image", "add", big, "--name", "big")
    millpond.ok(*create("first", "small", "--no-start"))
    millpond.run(*create("warm", "big"))  # its template is cached from here on
    refuses(6, "no space left in pool nova-disks-pool", *create(image="big"))


def test_no_space_for_the_template(millpond, make_filesystem, micro_guest, workdir, refuses):
    small = make_filesystem("ext4", 32 * MiB)
    millpond.configure(f"base_images_pool_path = {small.path / '_base'}")
    big = workdir / "big.raw"
    big.write_bytes(micro_guest.path.read_bytes() + os.urandom(40 * MiB))
    millpond.ok("image", "add", micro_guest.path, "--name", "small")
    millpond.ok("image", "add", big, "--name", "big")
    millpond.ok(*create("first", "small", "--no-start"))
    refuses(6, "no space left in pool nova-base-images-pool", *create(image="big"))
    left = [path for path in small.path.rglob("*") if path.is_file()]
    assert len(left) == 3  # the first template, its record, and what this host uses


def test_no_space_for_the_image(millpond, make_filesystem, workdir, libvirtd):
    small = make_filesystem("ext4", 32 * MiB)
    millpond.config.write_text(f"[DEFAULT]\nstate_path = {small.path}\n")
    (workdir / "big.raw").write_bytes(os.urandom(40 * MiB))
    code, message = millpond.fails("image", "add", workdir / "big.raw")
    assert code == 6
    assert "no space left" in message
    assert millpond.json("image", "list") == []
    assert not [path for path in small.path.rglob("*") if path.is_file()]


# The host


def test_libvirtd_that_does_not_run(millpond, one_server, libvirtd):
    libvirtd.stop()
    try:
        for words in (create(), ("pool", "list"), ("server", "delete", "first")):
            code, message = millpond.fails(*words)
            assert code == 6
            assert "cannot reach libvirt" in message
            assert "start libvirtd" in message
    finally:
        libvirtd.start()
    assert [each["name"] for each in millpond.json("server", "list")] == ["first"]


def test_servers_are_listed_without_libvirtd(millpond, one_server):
    dead = replace(millpond, uri="qemu:///system?socket=/nowhere/libvirt-sock")
    dead.configure()
    done = dead.run("server", "list")
    assert done.returncode == 0
    assert "unknown: host local does not answer" in done.stdout
    assert "cannot reach libvirt at" in done.stderr
    assert dead.fails("server", "stop", "--all")[0] == 6
    host = dead.run("host", "list")
    assert ("does not answer" in host.stdout, "/nowhere" in host.stdout) == (True, False)
    (listed,) = dead.json("host", "list")
    assert "/nowhere" in listed["problem"]


def test_libvirtd_restarted_in_between(millpond, one_server, libvirtd):
    host = millpond.host()
    assert host.domains.names()
    libvirtd.restart()
    millpond.ok(*create("second", "guest"))
    libvirtd.restart()
    assert {each["state"] for each in millpond.json("server", "list")} == {"running", "stopped"}


def test_a_configuration_that_is_wrong_is_all_said_at_once(millpond, one_server):
    millpond.configure("images_type_mapping = qcow2:tape\nimages_type = floppy")
    code, message = millpond.fails("server", "list")
    assert code == 2
    assert "tape" in message
    assert "floppy" in message


def fill(path):
    """All inodes, and all blocks."""
    path.mkdir()
    with suppress(OSError), open(path / "bytes", "wb", buffering=0) as file:
        with suppress(OSError):
            for number in itertools.count():
                (path / str(number)).touch()
        while True:
            file.write(bytes(4096))


def test_a_full_file_system_can_be_emptied_by_deleting(millpond, make_filesystem, micro_guest):
    """State directory and pools on one file system, and not a block or an inode left."""
    small = make_filesystem("ext4", 64 * MiB)
    millpond.config.write_text(
        f"[DEFAULT]\nstate_path = {small.path}/state\n"
        f"[libvirt]\nconnection_uri = {millpond.uri}\nvirt_type = qemu\n"
    )
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    millpond.ok(*create("web", "guest", "--no-start"))
    fill(small.path / "ballast")
    code, message = millpond.fails(*create("other", "guest", "--no-start"))
    assert code == 6
    assert "no space left" in message
    with pytest.raises(OSError, match="No space left"):
        (small.path / "new").touch()
    millpond.ok("server", "delete", "web")
    assert millpond.json("server", "list") == []
