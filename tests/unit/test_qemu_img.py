"""qemu-img tells how far it is."""

import pytest

from millpond.errors import ToolFailed
from millpond.model.formats import DiskFormat
from millpond.model.layer import FileSource, Layer
from millpond.model.sizes import MiB
from millpond.system import qemu_img
from millpond.system.qemu_img import ToolProgress


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.raw"
    path.write_bytes(b"x" * 16 * MiB)
    return path


@pytest.mark.parametrize("total", [16 * MiB, 1000, 7, 0])
def test_a_conversion_tells_of_all_bytes_and_of_no_more(source, tmp_path, total):
    done = []
    told = ToolProgress(progress=done.append, total=total)
    qemu_img.convert(source, DiskFormat.RAW, tmp_path / "made", DiskFormat.QCOW2, told)
    assert sum(done) == total
    assert min(done) >= 0
    assert len(done) > 2


def test_an_extraction_tells_of_its_bytes(source, tmp_path):
    done = []
    layer = Layer(source=FileSource(path=str(source)), format=DiskFormat.RAW)
    told = ToolProgress(progress=done.append, total=16 * MiB)
    qemu_img.extract([layer], tmp_path / "out", DiskFormat.QCOW2, compress=True, told=told)
    assert sum(done) == 16 * MiB


def test_a_conversion_that_fails_says_why_and_not_how_far_it_came(source, tmp_path):
    told = ToolProgress(progress=lambda _count: None, total=1)
    with pytest.raises(ToolFailed, match="Image is not in qcow2 format"):
        qemu_img.convert(source, DiskFormat.QCOW2, tmp_path / "made", DiskFormat.RAW, told)
