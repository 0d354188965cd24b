"""The index of an image: made in the pass that receives it, and kept with it."""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import CannotResume, DamagedRecord, FetchInterrupted
from millpond.images.index import INDEX_CHUNK, Indexing, make_index, read_index
from millpond.images.intake import Intake
from millpond.images.publish_index import index_image
from millpond.images.receive import examine, receive, receive_file
from millpond.images.source import Stream
from millpond.model.callbacks import noop
from millpond.model.formats import ImageFormat
from millpond.model.image import Image
from tests.support.image_files import KiB, MiB, converted, raw_file

EDGES = st.sampled_from([0, 1, 511, INDEX_CHUNK - 1, INDEX_CHUNK, INDEX_CHUNK + 1, MiB + 3])


def by_definition(content: bytes) -> bytes:
    starts = range(0, len(content), INDEX_CHUNK)
    return b"".join(hashlib.sha256(content[at : at + INDEX_CHUNK]).digest() for at in starts)


def root_of(content: bytes) -> str:
    return hashlib.sha256(by_definition(content)).hexdigest()


@settings(max_examples=40, deadline=None)
@given(st.lists(EDGES, max_size=8))
def test_however_the_bytes_come_the_index_is_theirs(lengths: list[int]) -> None:
    content = bytearray()
    indexing = Indexing()
    for number, length in enumerate(lengths):
        piece = bytes([number % 3]) * length  # the first are zeros
        content += piece
        indexing.eat(piece)
    index = indexing.finish()
    indexing.close()

    assert index.digests == by_definition(bytes(content))
    assert index.size == len(content)


def test_an_empty_image_has_an_index_of_nothing() -> None:
    index = make_index([])
    assert (index.size, index.digests) == (0, b"")
    assert index.root == hashlib.sha256(b"").hexdigest()


def test_the_length_of_an_image_is_bound_by_its_root() -> None:
    """A tail of zeros is not the same as none, or as a longer one."""
    roots = {make_index([b"x" * INDEX_CHUNK, bytes(length)]).root for length in (0, 1, 511, 512)}
    assert len(roots) == 4


@pytest.mark.parametrize("length", [INDEX_CHUNK, 5 * MiB, 5 * MiB + 512])
def test_every_way_in_makes_the_same_index(tmp_path: Path, length: int) -> None:
    """Of a stream, a file and what we made ourselves."""
    source = tmp_path / "source"
    content = (bytes(2 * INDEX_CHUNK) + bytes(range(256)) * (length // 256))[-length:]
    source.write_bytes(content)
    format = ImageFormat.RAW
    streamed = receive(stream_of(content), tmp_path / "a", format, "guest")
    copied = receive_file(source, tmp_path / "b", format, "guest")

    assert streamed == copied == examine(source, format, "guest")
    assert streamed.index.root == root_of(content)


def test_the_index_of_a_qcow2_is_that_of_its_file(tmp_path: Path) -> None:
    """As it is stored and sent, not of the disk in it."""
    path = converted(raw_file(tmp_path), ImageFormat.QCOW2)
    received = receive_file(path, tmp_path / "target", ImageFormat.QCOW2, "guest")
    assert received.index.digests == by_definition(path.read_bytes())


def test_what_broke_off_is_indexed_once(tmp_path: Path) -> None:
    """Resumed where it broke off, and begun again where that is impossible."""
    content = bytes(range(256)) * 12 * KiB

    def resuming(offset: int) -> Iterator[bytes]:
        yield content[offset : offset + MiB + 1]
        if offset + MiB + 1 < len(content):
            raise FetchInterrupted("guest", "broken off")

    tries: list[int] = []

    def beginning(offset: int) -> Iterator[bytes]:
        tries.append(offset)
        if offset:
            raise CannotResume("guest", "no parts here")
        yield content[: MiB + 1]
        if len(tries) == 1:
            raise FetchInterrupted("guest", "broken off")
        yield content[MiB + 1 :]

    for number, chunks in enumerate((resuming, beginning)):
        source = Stream(chunks=chunks, retries=5)
        received = receive(source, tmp_path / str(number), ImageFormat.RAW, "guest")
        assert received.index.root == root_of(content)
    assert tries == [0, MiB + 1, 0]


def stream_of(content: bytes) -> Stream:
    def chunks(offset: int) -> Iterator[bytes]:
        for at in range(offset, len(content), 100_000):
            yield content[at : at + 100_000]

    return Stream(chunks=chunks)


# With the image


@pytest.fixture
def catalogue(tmp_path: Path) -> Intake:
    return Intake(tmp_path / "images")


def test_the_catalogue_keeps_the_index_with_the_image(catalogue: Intake, tmp_path: Path) -> None:
    disk = raw_file(tmp_path)
    image = catalogue.add(disk, name="guest")

    assert image.index_root == root_of(disk.read_bytes())
    index = catalogue.find_index(catalogue.get("guest"))
    assert index
    assert (index.size, index.digests) == (image.size, by_definition(disk.read_bytes()))


def test_the_index_goes_with_the_last_image_of_its_content(
    catalogue: Intake, tmp_path: Path
) -> None:
    first = catalogue.add(raw_file(tmp_path), name="first")
    other = catalogue.add(raw_file(tmp_path), name="other")
    catalogue.remove(first)
    assert catalogue.find_index(other)
    catalogue.remove(other)
    assert list((tmp_path / "images" / "indexes").iterdir()) == []


def test_an_index_without_an_image_is_swept(catalogue: Intake, tmp_path: Path) -> None:
    """Also one that was not finished; what is not ours by its name stays."""
    image = catalogue.add(raw_file(tmp_path), name="guest")
    indexes = tmp_path / "images" / "indexes"
    lost = [indexes / ("0" * 128), indexes / f".{'1' * 128}.17.0123abcd"]
    for each in (*lost, indexes / "notes.txt"):
        each.write_bytes(b"x")

    assert catalogue.leftovers() == catalogue.cleanup() == sorted(lost)
    assert catalogue.find_index(image)
    assert (indexes / "notes.txt").exists()


def drop(path: Path) -> None:
    path.unlink()


def forget_index(image: Image, tmp_path: Path) -> Image:
    """As an earlier version has left it."""
    record = tmp_path / "images" / "records" / f"{image.id}.json"
    content = json.loads(record.read_bytes())
    del content["image"]["index_root"]
    record.write_text(json.dumps(content))
    drop(tmp_path / "images" / "indexes" / image.digest)
    return replace(image, index_root="")


def swap(path: Path) -> None:
    """As long as it should be, and of other bytes."""
    path.write_bytes(bytes(path.stat().st_size))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("spoil", [drop, swap, cut])
def test_a_damaged_index_is_none(
    catalogue: Intake, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    image = catalogue.add(raw_file(tmp_path), name="guest")
    spoil(tmp_path / "images" / "indexes" / image.digest)
    assert catalogue.find_index(image) is None


def test_a_list_of_another_length_is_not_that_of_the_image(tmp_path: Path) -> None:
    index = make_index([b"x" * INDEX_CHUNK, b"y"])
    (path := tmp_path / "index").write_bytes(index.digests)
    assert read_index(path, index.size, index.root) == index
    assert read_index(path, INDEX_CHUNK, index.root) is None
    assert read_index(path, 3 * INDEX_CHUNK, index.root) is None


def test_an_image_from_before_has_no_index(catalogue: Intake, tmp_path: Path) -> None:
    image = catalogue.add(raw_file(tmp_path), name="guest")
    before = forget_index(image, tmp_path)
    assert catalogue.get("guest") == before
    assert (before.digest, before.index_root) == (image.digest, "")
    assert catalogue.find_index(before) is None


def test_content_that_was_added_before_gets_its_index_with_the_next_image(
    catalogue: Intake, tmp_path: Path
) -> None:
    first = catalogue.add(raw_file(tmp_path), name="first")
    drop(tmp_path / "images" / "indexes" / first.digest)
    assert catalogue.find_index(catalogue.add(raw_file(tmp_path), name="again"))


# publish-index, where the catalogue is the source


def test_an_image_from_before_is_indexed(catalogue: Intake, tmp_path: Path) -> None:
    disk = raw_file(tmp_path)
    image = forget_index(catalogue.add(disk, name="guest", properties={"mine": "yes"}), tmp_path)

    indexed = index_image(catalogue, catalogue, image, noop)
    assert indexed == catalogue.get("guest")
    assert indexed == replace(image, index_root=root_of(disk.read_bytes()))
    assert catalogue.find_index(indexed)
    assert catalogue.leftovers() == []


def test_what_has_an_index_is_not_read_again(catalogue: Intake, tmp_path: Path) -> None:
    image = catalogue.add(raw_file(tmp_path), name="guest")
    catalogue.local_file(image).unlink()
    assert index_image(catalogue, catalogue, image, noop) == image


def test_content_that_has_rotted_gets_no_index(catalogue: Intake, tmp_path: Path) -> None:
    image = forget_index(catalogue.add(raw_file(tmp_path), name="guest"), tmp_path)
    blob = catalogue.local_file(image)
    blob.chmod(0o644)
    blob.write_bytes(bytes(image.size))

    with pytest.raises(DamagedRecord, match="has changed"):
        index_image(catalogue, catalogue, image, noop)
    assert catalogue.get("guest") == image
    assert catalogue.find_index(image) is None
