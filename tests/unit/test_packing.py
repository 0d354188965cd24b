"""Packed images, unpacked in the one pass over their bytes (B45)."""

import gzip
import hashlib
import lzma
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millpond.errors import FetchInterrupted, ImageRefused
from millpond.images.intake import Intake
from millpond.images.packing import Packing, Unpacking
from millpond.images.receive import receive
from millpond.images.source import Stream
from millpond.model.formats import ImageFormat
from millpond.model.transfer import Digest
from tests.support.image_files import KiB, MiB, converted, raw_file

pytestmark = pytest.mark.skipif(not shutil.which("zstd"), reason="zstd is not there: apt zstd")


def zstd(content: bytes) -> bytes:
    return subprocess.run(["zstd", "-q"], input=content, capture_output=True, check=True).stdout


PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
}


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    path = raw_file(tmp_path)
    with path.open("ab") as file:  # more than a piece, and not all of it zeros
        file.truncate(6 * MiB)
        file.seek(5 * MiB)
        file.write(hashlib.shake_256(b"millpond").digest(512 * KiB))
    return path


@pytest.fixture
def intake(tmp_path: Path) -> Intake:
    return Intake(tmp_path / "catalogue")


def left(intake: Intake) -> list[Path]:
    return list(intake._incoming.iterdir()) if intake._incoming.exists() else []


def is_refused(intake: Intake, path: Path, sentence: str) -> None:
    with pytest.raises(ImageRefused, match=sentence):
        intake.add(path)
    assert (intake.all(), left(intake)) == ([], [])


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("format", ["raw", "qcow2"])
def test_what_is_kept_is_what_was_packed(intake, raw, tmp_path, suffix, format):
    plain = raw if format == "raw" else converted(raw, "qcow2")
    packed = tmp_path / f"debian.{format}{suffix}"
    packed.write_bytes(PACK[suffix](plain.read_bytes()))
    published = hashlib.sha256(packed.read_bytes()).hexdigest()
    image = intake.add(packed, digest=Digest(algorithm="sha256", value=published))
    assert (image.name, image.format, image.size) == ("debian", format, plain.stat().st_size)
    assert image.digest == hashlib.sha512(plain.read_bytes()).hexdigest()
    assert intake.local_file(image).read_bytes() == plain.read_bytes()


@pytest.mark.parametrize("suffix", PACK)
def test_the_digest_is_that_of_the_bytes_as_published(intake, raw, tmp_path, suffix):
    packed = tmp_path / f"debian.raw{suffix}"
    packed.write_bytes(PACK[suffix](raw.read_bytes()))
    of_plain = Digest(algorithm="sha512", value=hashlib.sha512(raw.read_bytes()).hexdigest())
    with pytest.raises(ImageRefused, match="is not the one that was stated"):
        intake.add(packed, digest=of_plain)
    assert (intake.all(), left(intake)) == ([], [])


@pytest.mark.parametrize("suffix", PACK)
def test_a_part_is_refused(intake, raw, tmp_path, suffix):
    packed = tmp_path / f"debian.raw{suffix}"
    packed.write_bytes(PACK[suffix](raw.read_bytes())[:-100])
    is_refused(intake, packed, "cut off|cannot be unpacked")


@pytest.mark.parametrize("suffix", PACK)
def test_what_is_not_packed_so_is_refused(intake, raw, tmp_path, suffix):
    wrong = tmp_path / f"debian.raw{suffix}"
    wrong.write_bytes(raw.read_bytes())
    is_refused(intake, wrong, "cannot be unpacked")


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_several_members_and_padding_are_one_image(intake, raw, tmp_path, suffix):
    content = raw.read_bytes()
    packed = tmp_path / f"debian.raw{suffix}"
    half = len(content) // 2
    parts = PACK[suffix](content[:half]) + PACK[suffix](content[half:]) + bytes(512)
    packed.write_bytes(parts)
    image = intake.add(packed)
    assert intake.local_file(image).read_bytes() == content


def test_a_packer_that_wants_much_memory_is_refused(intake, raw, tmp_path):
    packed = tmp_path / "debian.raw.xz"
    packer = ["xz", "--format=xz", "--lzma2=dict=1GiB,mode=fast,mf=hc3", "-c", raw]
    done = subprocess.run(packer, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"xz cannot pack so here: {done.stderr.decode()}")
    packed.write_bytes(done.stdout)
    is_refused(intake, packed, "Memory usage limit")


def test_a_kernel_stays_packed(intake, tmp_path):
    packed = tmp_path / "vmlinuz.gz"
    packed.write_bytes(gzip.compress(b"kernel"))
    image = intake.add(packed, name="vmlinuz", format=ImageFormat.AKI)
    assert intake.local_file(image).read_bytes() == packed.read_bytes()


@pytest.mark.parametrize("suffix", PACK)
def test_a_fetch_that_breaks_off_goes_on(raw, tmp_path, suffix):
    packed = PACK[suffix](raw.read_bytes())
    offsets: list[int] = []

    def chunks(offset: int) -> Iterator[bytes]:
        offsets.append(offset)
        for start in range(offset, len(packed), 100 * KiB):
            yield packed[start : start + 100 * KiB]
            if len(offsets) == 1 and start >= 200 * KiB:
                raise FetchInterrupted("http://here", "broken off")

    stream = Stream(chunks=chunks, retries=1)
    target = tmp_path / "target"
    receive(stream, target, ImageFormat.RAW, "debian", packing=Packing(suffix))
    assert target.read_bytes() == raw.read_bytes()
    assert offsets == [0, 300 * KiB]


@pytest.mark.parametrize(
    ("packing", "member", "count"),
    [(Packing.GZIP, gzip.compress(b""), 200_000), (Packing.XZ, lzma.compress(b""), 200_000)],
)
def test_many_small_members_are_no_work_without_end(packing, member, count):
    """Each of them copied all that was fed behind it: minutes."""
    content = member * count + PACK[packing](b"the end")
    unpacking, begun = Unpacking(packing, "many"), time.process_time()
    found = b"".join((*unpacking.feed(content), *unpacking.finish()))
    assert found == b"the end"
    assert time.process_time() - begun < 30
