"""What receiving an image costs, and leaves, on real file systems."""

import hashlib
import random
import subprocess
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import pytest

from millpond.errors import ImageRefused, NoSpace
from millpond.images.intake import Intake
from millpond.images.receive import receive, receive_file
from millpond.images.source import Stream
from millpond.model.callbacks import noop
from millpond.model.formats import ImageFormat
from millpond.system import files, streams
from tests.support.loopfs import MIB, FilesystemKind, MakeFilesystem

SIZE = 48 * MIB


def write_disk(path: Path, size: int = SIZE) -> str:
    content = random.Random(1).randbytes(size)
    path.write_bytes(content)
    return hashlib.sha512(content).hexdigest()


@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_where_blocks_can_be_shared_no_byte_is_written_again(
    make_filesystem: MakeFilesystem, kind: FilesystemKind
) -> None:
    place = make_filesystem(kind)
    source, target = place.path / "disk.raw", place.path / "received"
    digest = write_disk(source)
    before = place.bytes_written()
    done: list[int] = []

    received = receive_file(source, target, ImageFormat.RAW, "guest", done.append)

    assert received.digest == digest
    assert sum(done) == SIZE
    assert target.read_bytes() == source.read_bytes()
    assert place.bytes_written() - before < SIZE // 2


@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_who_writes_to_the_source_meanwhile_changes_nothing(
    make_filesystem: MakeFilesystem, kind: FilesystemKind
) -> None:
    place = make_filesystem(kind)
    source, target = place.path / "disk.raw", place.path / "received"
    digest = write_disk(source)

    def write(_count: int) -> None:
        with source.open("r+b") as file:
            file.seek(SIZE - 4096)
            file.write(b"changed")

    received = receive_file(source, target, ImageFormat.RAW, "guest", write)

    assert received.digest == digest
    assert hashlib.sha512(target.read_bytes()).hexdigest() == digest


@pytest.mark.parametrize("kind", ["xfs", "ext4"])
def test_a_refused_file_takes_no_space(
    make_filesystem: MakeFilesystem, kind: FilesystemKind
) -> None:
    place = make_filesystem(kind)
    source = place.path / "disk.raw"
    write_disk(source)
    before = set(place.path.iterdir())

    with pytest.raises(ImageRefused):
        receive_file(source, place.path / "received", ImageFormat.QCOW2, "guest")

    assert set(place.path.iterdir()) == before


def test_a_full_file_system_is_said_and_nothing_is_left(
    make_filesystem: MakeFilesystem, workdir: Path
) -> None:
    place = make_filesystem("ext4", 32 * MIB)
    write_disk(workdir / "disk.raw")
    catalogue = Intake(place.path / "images")

    with pytest.raises(NoSpace, match=r"no space left in .*incoming: more than") as caught:
        catalogue.add(workdir / "disk.raw")

    assert caught.value.available not in ("0 B", "")  # what is free now that it is gone again
    assert catalogue.all() == []
    assert catalogue.leftovers() == []
    assert not list((place.path / "images" / "incoming").iterdir())


@pytest.fixture
def small_tmpfs(workdir: Path) -> Iterator[Path]:
    """Of 1 MiB. The write that meets its end is short; ext4 would refuse all of it."""
    where = workdir / "tmpfs"
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(where)], check=True)
    yield where
    subprocess.run(["umount", str(where)], check=True)


def test_a_volume_that_is_fetched_into_a_full_file_system_is_not_filled_with_holes(
    small_tmpfs: Path,
) -> None:
    (small_tmpfs / "ballast").write_bytes(bytes(100 * 1024))
    content = random.Random(1).randbytes(MIB)
    with pytest.raises(NoSpace, match="no space left"):
        streams.write([content], small_tmpfs / "fetched", noop)


def test_an_image_of_holes_fits_where_its_length_does_not(
    make_filesystem: MakeFilesystem, workdir: Path
) -> None:
    place = make_filesystem("ext4", 32 * MIB)
    sparse = workdir / "sparse.raw"
    with sparse.open("wb") as file:
        file.truncate(256 * MIB)

    image = Intake(place.path / "images").add(sparse)

    assert image.size == 256 * MIB


@pytest.mark.parametrize("content", [bytes(MIB), b"x" * MIB], ids=["zeros", "data"])
def test_an_answer_without_an_end_does_not_fill_the_file_system(
    make_filesystem: MakeFilesystem, content: bytes
) -> None:
    place = make_filesystem("ext4", size=64 * MIB)
    free = files.free_space(place.path)
    arrived: list[int] = []
    stream = Stream(chunks=lambda _offset: repeat(content))

    with pytest.raises(ImageRefused, match="its server states no length"):
        receive(stream, place.path / "part", ImageFormat.RAW, "guest", arrived.append)

    assert sum(arrived) <= free * 9 // 10
    assert not (place.path / "part").exists()
