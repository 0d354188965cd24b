"""What a move reads at the source's pool and writes to the destination's, counted at their
devices."""

import os
import subprocess
from pathlib import Path

import pytest

from millpond.model.sizes import GiB, MiB
from tests.real.test_migrate import images  # noqa: F401

_READ, _WRITTEN = 2, 6
"""Fields of /sys/block/*/stat, in units of 512 bytes (Documentation/block/stat.rst in Linux)."""
PIECES, PIECE = 16, 12 * MiB


def counted(filesystem, field):
    subprocess.run(["sync", "--file-system", filesystem.path], check=True)
    stat = Path(f"/sys/block/{filesystem.device.name}/stat").read_text().split()
    return int(stat[field]) * 512


def write_as_a_guest(host, path):
    """Here and there on 10 GiB."""
    words = [
        word
        for number in range(PIECES)
        for word in ("-c", f"write -P {number + 1} {number * 640 + 1}M {PIECE}")
    ]
    host.run("qemu-io", "-f", "qcow2", *words, str(path))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.mark.full
def test_only_what_the_overlay_holds_travels(images, make_filesystem):  # noqa: F811
    here, there = (make_filesystem("ext4", 16 * GiB) for _ in range(2))
    for each in (here, there):
        each.path.chmod(0o755)
    images.configure(
        {
            "alder": f"disks_pool_path = {here.path}/disks",
            "birch": f"disks_pool_path = {there.path}/disks",
        }
    )
    words = ("--image", "qcow2", "--memory", "16M", "--disk", "10G", "--no-start")
    images.ok("server", "create", "other", *words, "--host", "birch")  # the base is cached there
    images.ok("server", "delete", "other")
    images.ok("server", "create", "web", *words, "--host", "alder")
    volume = images.deployment().server("web").disks[0].volume
    path = here.path / "disks" / volume
    write_as_a_guest(images.hosts["alder"], path)
    allocated = path.stat().st_blocks * 512
    assert PIECES * PIECE <= allocated < PIECES * PIECE + 16 * MiB
    read, written = counted(here, _READ), counted(there, _WRITTEN)
    told = images.json("server", "migrate", "web", "--host", "birch")
    read, written = counted(here, _READ) - read, counted(there, _WRITTEN) - written
    config = 2 * MiB  # the other disk, and the file system's own
    assert told["disks"][0]["way"] == "copy"
    assert told["moved"] <= 1.05 * allocated
    assert 0.9 * allocated <= read <= 1.05 * allocated + config, (read, allocated)
    assert 0.9 * allocated <= written <= 1.05 * allocated + config, (written, allocated)
    moved = there.path / "disks" / volume
    assert moved.stat().st_blocks * 512 <= 1.05 * allocated
    images.ok("server", "start", "web")
    images.ok("server", "delete", "web")  # before its file system is unmounted
