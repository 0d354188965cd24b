"""Free space: what the file system lets us use, wherever it is shown."""

import os
import shutil
import subprocess

import pytest

from millpond.model.sizes import MiB, format_size


def test_everybody_says_the_same(millpond, make_filesystem, micro_guest):
    small = make_filesystem("ext4", 256 * MiB)  # which keeps some for root
    millpond.configure(default=f"instances_path = {small.path}/instances")
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    words = ("--image", "guest", "--memory", "32M", "--network", "none", "--no-start")
    millpond.ok("server", "create", "web", *words)
    found = os.statvfs(small.path)
    assert found.f_bavail < found.f_bfree
    free = found.f_bavail * found.f_frsize
    usages = [each["usage"] for each in millpond.json("pool", "list")]
    assert {each["available"] for each in usages} == {free}
    assert f"{format_size(free)} of" in millpond.run("doctor").stdout
    shown = millpond.json("pool", "show", "nova-disks-pool")
    assert shown["usage"] == usages[0]
    taken = (found.f_blocks - found.f_bfree) * found.f_frsize
    (host,) = millpond.json("host", "list")
    assert host["pools"][0]["disk"]["capacity"] == taken + free


def test_a_second_state_directory_is_refused_and_leaves_nothing(
    millpond, micro_guest, connection, workdir
):
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    words = ("--image", "guest", "--memory", "32M", "--network", "none", "--no-start")
    millpond.ok("server", "create", "web", *words)
    before = set(connection.listStoragePools())
    pools = "base_images_pool = small-base\ndisks_pool = small-disks"
    text = millpond.config.read_text().replace(str(millpond.state), f"{workdir}/second")
    second = workdir / "second.conf"
    second.write_text(f"{text}{pools}\n")
    millpond.ok("--config-file", second, "image", "add", micro_guest.path, "--name", "guest")
    code, message = millpond.fails("--config-file", second, "server", "create", "x", *words)
    assert (code, "one libvirtd serves one state directory" in message) == (6, True)
    assert set(connection.listStoragePools()) == before


@pytest.mark.parametrize("packer", ["gzip", "xz", "zstd"])
def test_a_packed_image_that_would_fill_the_file_system_is_refused(
    millpond, make_filesystem, micro_guest, workdir, packer
):
    """A few bytes may unpack to any number: nine tenths of the free space are the most."""
    if shutil.which(packer) is None:
        pytest.skip(f"{packer} is not there: apt-get install {packer}")
    small = make_filesystem("ext4", 64 * MiB)
    millpond.config.write_text(f"[DEFAULT]\nstate_path = {small.path}/state\n")
    suffix = {"gzip": "gz", "xz": "xz", "zstd": "zst"}[packer]
    bomb = workdir / f"bomb.raw.{suffix}"
    bomb.write_bytes(pack(packer, bytes(256 * MiB)))
    assert bomb.stat().st_size < MiB
    code, message = millpond.fails("image", "add", bomb)
    assert (code, "it unpacks to more than" in message) == (5, True)
    assert not [each for each in small.path.rglob("*") if each.is_file() and each.stat().st_size]
    good = workdir / f"good.raw.{suffix}"
    good.write_bytes(pack(packer, micro_guest.path.read_bytes()))
    assert millpond.json("image", "add", good)["virtual_size"] == MiB


def pack(packer, content):
    return subprocess.run([packer, "-c"], input=content, capture_output=True, check=True).stdout
