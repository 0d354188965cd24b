"""One function per verb of qemu-img: stated formats in, values out, limits always."""

from pathlib import Path

from millpond.errors import MillpondError, NoSpace, ToolFailed
from millpond.model.formats import DiskFormat
from millpond.system.process import CONVERSION, run

_OPTIONS = {DiskFormat.QCOW2: ["-o", "compat=1.1"]}


def convert(source: Path, source_format: DiskFormat, target: Path, format: DiskFormat) -> None:
    """A copy in another format. Only for bytes that passed inspection: qemu-img opens them."""
    words = ["qemu-img", "convert", "-f", source_format.qemu, "-O", format.qemu]
    words += [*_OPTIONS.get(format, []), str(source), str(target)]
    try:
        run(words, CONVERSION)
    except ToolFailed as error:
        raise _explained(error, target) from error


def _explained(error: ToolFailed, target: Path) -> MillpondError:
    if "No space left" in error.reason:
        return NoSpace(str(target.parent), "more", "too little")
    return error
