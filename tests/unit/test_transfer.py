"""Bytes on their way from one host to another, and the proof that they arrived."""

import os
import subprocess
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.disks import transfer
from millpond.disks.transfer import ContentDigest
from millpond.errors import HostProblem, ToolFailed
from millpond.libvirt.memory_pool import MemoryPool
from millpond.model.formats import Backend, DiskFormat
from millpond.model.server import Disk
from millpond.model.sizes import MiB
from millpond.system import qcow2, streams
from millpond.system.streams import Piece

KIB = 1024
DISK = Disk(
    role="disk",
    backend=Backend.RAW,
    pool="disks",
    volume="a",
    format=DiskFormat.RAW,
    size=MiB,
    target="vda",
)


def digest(pieces: list[Piece]) -> str:
    found = ContentDigest()
    for each in pieces:
        found.add(each)
    assert found.length == sum(len(each) if isinstance(each, bytes) else each for each in pieces)
    return found.hexdigest()


PIECES = st.lists(
    st.one_of(
        st.integers(1, 200 * KIB),
        st.binary(min_size=1, max_size=300),
        st.integers(1, 200 * KIB).map(lambda count: b"x" * count),
    ),
    max_size=6,
)


@given(PIECES, st.integers(1, 100 * KIB))
def test_the_same_content_has_the_same_digest_in_whatever_pieces_it_comes(pieces, cut):
    whole = b"".join(streams.plain(pieces))
    cuts = [whole[at : at + cut] for at in range(0, len(whole), cut)]
    assert digest(pieces) == digest([whole]) == digest(cuts) == digest([whole, 70 * KIB])


@given(PIECES, st.integers(0, 600 * KIB))
def test_one_other_byte_is_another_digest(pieces, at):
    whole = bytearray(b"".join(streams.plain(pieces)) + b"end")
    changed = whole.copy()
    changed[at % len(whole)] ^= 1
    assert digest([bytes(whole)]) != digest([bytes(changed)])


def test_content_that_moves_within_a_disk_is_another_one():
    assert digest([64 * KIB, b"x", 128 * KIB]) != digest([128 * KIB, b"x", 64 * KIB])


def test_what_was_sent_is_compared_with_what_arrived():
    pool = MemoryPool("disks")
    told: list[int] = []
    sent = transfer.send([b"begins", MiB - 10, b"ends"], MiB, pool, "a", told.append)
    assert (sent.length, sent.moved, sum(told)) == (MiB, 10, 10)
    transfer.verify(pool, DISK, sent)
    pool.upload("a", b"begun!")
    with pytest.raises(HostProblem, match="disks/a does not hold what was sent"):
        transfer.verify(pool, DISK, sent)


def test_a_volume_that_ends_early_is_an_error():
    with pytest.raises(HostProblem, match="only 6 of 1048576 bytes came"):
        transfer.send([b"begins"], MiB, MemoryPool("disks"), "a")


@pytest.fixture
def overlay(tmp_path):
    base, top = tmp_path / "base.raw", tmp_path / "top.qcow2"
    base.write_bytes(os.urandom(MiB))
    words = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, top]
    subprocess.run(words, check=True)
    write = ["qemu-io", "-c", "write -P 7 4096 512", top]
    subprocess.run(write, check=True, stdout=subprocess.DEVNULL)
    return top


def in_pieces(content: bytes) -> Iterator[Piece]:
    """With holes, also in the header's own cluster."""
    yield content[: 4 * KIB]
    assert not any(content[4 * KIB : 100 * KIB][: 60 * KIB])
    yield 60 * KIB
    yield content[64 * KIB :]


@pytest.mark.parametrize("name", ["longer/than/the/one/before/by/far", "x"])
def test_an_overlay_names_its_base_where_it_is_now(overlay, name):
    base = overlay.with_name("base.raw")
    new = overlay.parent / name
    new.parent.mkdir(parents=True, exist_ok=True)
    base.rename(new)
    renamed = transfer.rename_backing(in_pieces(overlay.read_bytes()), str(new))
    before = overlay.stat().st_size
    overlay.write_bytes(b"".join(streams.plain(renamed)))
    assert overlay.stat().st_size == before
    found = qcow2.read_header(overlay)
    assert (found.backing, found.backing_format) == (str(new), "raw")
    subprocess.run(["qemu-img", "check", "-q", overlay], check=True)
    flat = overlay.with_name("flat")
    subprocess.run(["qemu-img", "convert", "-O", "raw", overlay, flat], check=True)
    content = bytearray(new.read_bytes())
    content[4096:4608] = b"\7" * 512
    assert flat.read_bytes() == content


def test_an_overlay_above_a_link_names_nothing(overlay):
    renamed = transfer.rename_backing(in_pieces(overlay.read_bytes()), "")
    overlay.write_bytes(b"".join(streams.plain(renamed)))
    assert qcow2.read_header(overlay).stands_alone
    again = transfer.rename_backing(in_pieces(overlay.read_bytes()), "/base")
    assert b"".join(streams.plain(again)) == overlay.read_bytes()


def test_a_name_without_room_is_refused(overlay):
    with pytest.raises(ToolFailed, match="no room for the name"):
        list(transfer.rename_backing(in_pieces(overlay.read_bytes()), "/" + "x" * 70 * KIB))
