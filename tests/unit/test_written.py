"""Images that we wrote ourselves: what a tool lost is found."""

from pathlib import Path

import pytest

from millpond.errors import ToolFailed
from millpond.images.formats import written
from millpond.model.formats import DiskFormat
from tests.support.image_files import MiB, converted, cut, patched, qemu_img, raw_file

RAW, QCOW2, PLOOP = DiskFormat.RAW, DiskFormat.QCOW2, DiskFormat.PLOOP


def test_the_size_is_that_of_the_disk(tmp_path: Path) -> None:
    source = raw_file(tmp_path)
    assert written.virtual_size(source, RAW) == 4 * MiB
    for format in (QCOW2, PLOOP):
        assert written.virtual_size(converted(source, format.qemu), format) == 4 * MiB


@pytest.mark.parametrize("format", [QCOW2, PLOOP])
@pytest.mark.parametrize("length", [0, 20])
def test_what_is_hardly_begun_is_no_image(tmp_path: Path, format: DiskFormat, length: int) -> None:
    with pytest.raises(ToolFailed, match=r"is not the .* image that it should be"):
        written.virtual_size(cut(converted(raw_file(tmp_path), format.qemu), length), format)


def test_another_format_is_not_taken_for_it(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="not the ploop image"):
        written.virtual_size(converted(raw_file(tmp_path), "qcow2"), PLOOP)
    with pytest.raises(ToolFailed, match="no format that is written here"):
        written.virtual_size(converted(raw_file(tmp_path), "vdi"), DiskFormat.VDI)


def test_a_ploop_image_must_be_whole(tmp_path: Path) -> None:
    image = converted(raw_file(tmp_path), "parallels")
    with pytest.raises(ToolFailed, match="not the ploop image"):
        written.virtual_size(cut(image, image.stat().st_size - 512), PLOOP)


def test_a_qcow2_image_must_stand_alone(tmp_path: Path) -> None:
    base, overlay = raw_file(tmp_path), tmp_path / "overlay.qcow2"
    qemu_img("create", "-f", "qcow2", "-F", "raw", "-b", base, overlay)
    with pytest.raises(ToolFailed, match="does not stand alone"):
        written.virtual_size(overlay, QCOW2)


def test_an_image_that_a_crash_left_open_has_its_size_and_says_so(tmp_path: Path) -> None:
    image = converted(raw_file(tmp_path), "parallels")
    left_open = patched(image, 44, b"Ynot")
    assert written.was_closed(image)
    assert not written.was_closed(left_open)
    assert written.virtual_size(left_open, PLOOP) == 4 * MiB
