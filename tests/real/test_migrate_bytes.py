"""What a move reads at the source's pool and writes to the destination's, counted at their
devices."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from millpond.model.sizes import GiB, MiB
from tests.real.test_migrate import images  # noqa: F401
from tests.support.millpond import converted

_READ, _WRITTEN = 2, 6
"""Fields of /sys/block/*/stat, in units of 512 bytes (Documentation/block/stat.rst in Linux)."""
PIECES, PIECE = 16, 12 * MiB
MEMORY = 16 * MiB
"""It travels with a guest that runs."""


BASE = 64 * MiB
"""So much of the template would be seen if it travelled."""


def counted(filesystem, field):
    subprocess.run(["sync", "--file-system", filesystem.path], check=True)
    stat = Path(f"/sys/block/{filesystem.device.name}/stat").read_text().split()
    return int(stat[field]) * 512


@pytest.fixture
def image(images, micro_guest, workdir):  # noqa: F811
    path = workdir / "large.raw"
    path.write_bytes(micro_guest.path.read_bytes() + os.urandom(BASE))
    large = converted(replace(micro_guest, path=path), "qcow2", workdir)
    images.ok("image", "add", large, "--name", "large")
    return "large"


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
@pytest.mark.parametrize("live", [(), ("--live",)], ids=["cold", "live"])
def test_only_what_the_overlay_holds_travels(images, image, make_filesystem, live):  # noqa: F811
    here, there = (make_filesystem("ext4", 16 * GiB) for _ in range(2))
    for each in (here, there):
        each.path.chmod(0o755)
    images.configure(
        {
            "alder": f"disks_pool_path = {here.path}/disks",
            "birch": f"disks_pool_path = {there.path}/disks",
        }
    )
    words = ("--image", image, "--memory", "16M", "--disk", "10G", "--no-start")
    images.ok("server", "create", "other", *words, "--host", "birch")  # the base is cached there
    images.ok("server", "delete", "other")
    images.ok("server", "create", "web", *words, "--host", "alder")
    volume = images.deployment().server("web").disks[0].volume
    path = here.path / "disks" / volume
    write_as_a_guest(images.hosts["alder"], path)
    allocated = path.stat().st_blocks * 512
    assert PIECES * PIECE <= allocated < PIECES * PIECE + 16 * MiB
    if live:
        images.ok("server", "start", "web")
    read, written = counted(here, _READ), counted(there, _WRITTEN)
    told = images.json("server", "migrate", "web", "--host", "birch", *live)
    read, written = counted(here, _READ) - read, counted(there, _WRITTEN) - written
    config = 2 * MiB  # the other disk, and the file system's own
    assert told["disks"][0]["way"] == "copy"
    assert told["moved"] <= 1.05 * allocated + bool(live) * 2 * MEMORY
    assert 0.9 * allocated <= read <= 1.05 * allocated + config, (read, allocated)
    assert 0.9 * allocated <= written <= 1.05 * allocated + config, (written, allocated)
    moved = there.path / "disks" / volume
    assert moved.stat().st_blocks * 512 <= 1.05 * allocated
    if not live:
        images.ok("server", "start", "web")
    assert images.json("server", "show", "web")["state"] == "running"
    images.ok("server", "delete", "web")  # before its file system is unmounted
