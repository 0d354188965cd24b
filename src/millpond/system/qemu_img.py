"""One function per verb of qemu-img: stated formats in, values out, limits always."""

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from millpond.errors import ToolFailed
from millpond.model.formats import DiskFormat
from millpond.system.process import CONVERSION, run


@dataclass(frozen=True, slots=True)
class Layer:
    """One file or device of a disk, and what we know that it is."""

    path: Path
    format: DiskFormat


_OPTIONS = {DiskFormat.QCOW2: ["-o", "compat=1.1"]}


def convert(source: Path, source_format: DiskFormat, target: Path, format: DiskFormat) -> None:
    """A copy in another format. Only for bytes that passed inspection: qemu-img opens them."""
    words = ["qemu-img", "convert", "-f", source_format.qemu, "-O", format.qemu]
    words += [*_OPTIONS.get(format, []), str(source), str(target)]
    _run(words)


def extract(layers: Sequence[Layer], target: Path, format: DiskFormat, *, compress: bool) -> None:
    """What a disk shows, as one image. Every layer is stated, the top first: nothing that is
    written in a header is followed."""
    words = ["qemu-img", "convert", "--image-opts", "-O", format.qemu, *_OPTIONS.get(format, [])]
    words += ["-c"] if compress else []
    _run([*words, _stated(layers), str(target)])


def _stated(layers: Sequence[Layer], prefix: str = "") -> str:
    top, *below = layers
    door = "host_device" if top.path.is_block_device() else "file"
    path = str(top.path).replace(",", ",,")
    options = [
        f"{prefix}driver={top.format.qemu}",
        f"{prefix}file.driver={door}",
        f"{prefix}file.filename={path}",
    ]
    if below:
        options.append(_stated(below, f"{prefix}backing."))
    return ",".join(options)


def _run(words: list[str]) -> None:
    try:
        run(words, CONVERSION)
    except ToolFailed as error:
        if "No space left" in error.reason:
            raise OSError(errno.ENOSPC, error.reason) from error
        raise
