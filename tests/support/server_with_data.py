"""A server with a data disk that has something on it."""

import subprocess
from pathlib import Path

from tests.support.guests import MicroGuest
from tests.support.millpond import Millpond, converted

PATTERN = b"what a guest keeps on its data disk".ljust(64 * 1024, b".")


def make(
    millpond: Millpond, guest: MicroGuest, workdir: Path, format: str, *options: object
) -> str:
    """Its id. It is named web, and runs."""
    millpond.configure(f"images_type = {format}")
    path = converted(guest, "qcow2", workdir)
    millpond.ok("image", "add", path, "--name", "guest", "--property", "hw_vif_model=e1000")
    words = ("--image", "guest", "--memory", "32M", *(options or ("--network", "none")))
    made = millpond.json("server", "create", "web", *words, "--no-start")
    disk = millpond.json("server", "disk", "add", "web", "--size", "8M")
    write(millpond.disks / disk["volume"], format)
    millpond.ok("server", "start", "web")
    millpond.wait_for_console(made["id"], "TICK 0001")
    return str(made["id"])


def write(path: Path, format: str) -> None:
    data = path.with_name("data.raw")
    data.write_bytes(PATTERN)
    words = ["qemu-img", "convert", "-n", "-f", "raw", "-O", format, str(data), str(path)]
    subprocess.run(words, check=True)
    data.unlink()


def read(path: Path, workdir: Path) -> bytes:
    flat = workdir / "flat.raw"
    subprocess.run(["qemu-img", "convert", "-O", "raw", str(path), str(flat)], check=True)
    return flat.read_bytes()
