"""What operations are tried on: a private libvirtd, small file systems, images, no server yet."""

import contextlib
import hashlib
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.guests import MicroGuest
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.loopfs import MIB, fill, loop_filesystem
from tests.support.millpond import Millpond

SIZE = 4 * MIB
"""Of the images' disks."""
FORMATS = ("raw", "qcow2", "vmdk")
_SPARES = 3
"""Images of each format besides the one that is always there."""
_STATE_SIZE = 96 * MIB
_POOL_SIZE = 512 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFile:
    """Something to add, and the disk that it holds."""

    path: Path
    content: bytes
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    millpond: Millpond
    libvirtd: PrivateLibvirtd
    files: Mapping[str, tuple[ImageFile, ...]]
    """By format; the first one is added as an image of the format's name, and stays."""
    instances: Path
    """Where the pools are: in the state directory, or on a file system of their own."""

    @property
    def state(self) -> Path:
        return self.millpond.state

    @property
    def disks(self) -> Path:
        return self.instances / "disks"

    @property
    def bases(self) -> Path:
        return self.instances / "_base"

    @contextlib.contextmanager
    def full(self, where: Path, leaving: int) -> Iterator[None]:
        """No more than so many bytes can be written there."""
        filler = where / "filler"
        try:
            fill(filler, leaving)
            yield
        finally:
            filler.unlink()


@contextlib.contextmanager
def new_world(
    libvirtd: PrivateLibvirtd, parent: Path, guest: MicroGuest, seed: int, *, apart: bool
) -> Iterator[World]:
    """``apart``: the pools are on a file system of their own, and disks are copies by default."""
    directory = Path(tempfile.mkdtemp(prefix="world-", dir=parent))
    directory.chmod(0o755)
    millpond = Millpond(directory=directory, uri=libvirtd.uri)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        stack.enter_context(loop_filesystem("ext4", _STATE_SIZE, millpond.state))
        (millpond.state / "lost+found").rmdir()
        instances = directory / "instances" if apart else millpond.state / "instances"
        if apart:
            stack.enter_context(loop_filesystem("xfs", _POOL_SIZE, instances))
        stack.callback(libvirtd.clear)
        images_type = f"images_type = {'raw' if apart else 'default'}"
        mapping = "images_type_mapping = qcow2:qcow2, raw:raw"
        millpond.configure(f"{images_type}\n{mapping}", f"instances_path = {instances}")
        millpond.make_pools()
        files = dict(_files(directory, guest, random.Random(seed)))
        for format in FORMATS:
            millpond.ok("image", "add", files[format][0].path, "--name", format)
        yield World(millpond=millpond, libvirtd=libvirtd, files=files, instances=instances)


def _files(
    directory: Path, guest: MicroGuest, chance: random.Random
) -> Iterator[tuple[str, tuple[ImageFile, ...]]]:
    for format in FORMATS:
        made = [_file(directory, guest, format, number, chance) for number in range(1 + _SPARES)]
        yield format, tuple(made)


def _file(
    directory: Path, guest: MicroGuest, format: str, number: int, chance: random.Random
) -> ImageFile:
    """The guest, and noise behind it."""
    content = bytearray(guest.path.read_bytes().ljust(SIZE, b"\0"))
    start = MIB + 4096 * chance.randrange(100)
    content[start : start + MIB] = chance.randbytes(MIB)
    raw, path = directory / "content", directory / f"{number}.{format}"
    raw.write_bytes(content)
    words = ["qemu-img", "convert", "-f", "raw", "-O", format]
    subprocess.run([*words, str(raw), str(path)], check=True)
    digest = hashlib.sha512(path.read_bytes()).hexdigest()
    return ImageFile(path=path, content=bytes(content), digest=digest)
