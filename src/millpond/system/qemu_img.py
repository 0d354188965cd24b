"""One function per verb of qemu-img: stated formats in, values out, limits always."""

import errno
from pathlib import Path

from millpond.errors import ToolFailed
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
        if "No space left" in error.reason:
            raise OSError(errno.ENOSPC, error.reason) from error
        raise
