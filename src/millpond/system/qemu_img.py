"""One function per verb of qemu-img: stated formats in, values out, limits always."""

import errno
from collections.abc import Sequence
from pathlib import Path

from millpond.errors import ToolFailed, Unsupported
from millpond.model.formats import DiskFormat
from millpond.model.layer import FileSource, Layer, RbdSource, Source, VolumeSource
from millpond.system.process import CONVERSION, run

_OPTIONS = {DiskFormat.QCOW2: ["-o", "compat=1.1"]}

# QEMU does not reopen these for reading when an overlay comes above, and keeps its write lock.
_STAYS_LOCKED = (DiskFormat.PLOOP,)


def convert(source: Path, source_format: DiskFormat, target: Path, format: DiskFormat) -> None:
    """A copy in another format. Only for bytes that passed inspection: qemu-img opens them."""
    words = ["qemu-img", "convert", "-f", source_format.qemu, "-O", format.qemu]
    words += [*_OPTIONS.get(format, []), str(source), str(target)]
    _run(words)


def resize(path: Path, format: DiskFormat, size: int) -> None:
    """Larger only: qemu-img refuses the other way unless it is told so."""
    _run(["qemu-img", "resize", "-q", "-f", format.qemu, str(path), str(size)])


def extract(layers: Sequence[Layer], target: Path, format: DiskFormat, *, compress: bool) -> None:
    """What a disk shows, as one image. Every layer is stated, the top first: nothing that is
    written in a header is followed."""
    words = ["qemu-img", "convert", "--image-opts", "-O", format.qemu, *_OPTIONS.get(format, [])]
    words += ["-c"] if compress else []
    words += ["-U"] if any(layer.format in _STAYS_LOCKED for layer in layers) else []
    _run([*words, _stated(layers), str(target)])


def copy(source: Layer, target: Layer) -> None:
    """Into an image or a device that is there, and may be larger; both are stated."""
    words = ["qemu-img", "convert", "-n", "--image-opts", "--target-image-opts"]
    _run([*words, _stated([source]), _stated([target])])


def commit(layers: Sequence[Layer]) -> None:
    """Write the top layer into the next; it is not emptied afterwards. Every layer is stated."""
    _run(["qemu-img", "commit", "-q", "-d", "--image-opts", _stated(layers)])


def _stated(layers: Sequence[Layer]) -> str:
    """As --image-opts takes it."""
    return ",".join(f"{key}={value.replace(',', ',,')}" for key, value in _options(layers).items())


def _options(layers: Sequence[Layer], prefix: str = "") -> dict[str, str]:
    top, *below = layers
    door = {f"{prefix}file.{key}": value for key, value in _door(top.source).items()}
    rest = _options(below, f"{prefix}backing.") if below else {}
    return {f"{prefix}driver": top.format.qemu, **door, **rest}


def _door(source: Source) -> dict[str, str]:
    """How QEMU opens the bytes."""
    match source:
        case FileSource(path=path, device=device):
            return {"driver": "host_device" if device else "file", "filename": path}
        case RbdSource(access=access, image=image, snapshot=snapshot):
            options = {
                "driver": "rbd",
                "pool": access.pool,
                "image": image,
                "snapshot": snapshot,
                "conf": str(access.conf or ""),
                "user": access.user,
            }
            return {key: value for key, value in options.items() if value}
        case VolumeSource(pool=pool, volume=volume):
            raise Unsupported(f"opening {pool}/{volume} by qemu-img", "it has no path here")


def _run(words: list[str]) -> None:
    try:
        run(words, CONVERSION)
    except ToolFailed as error:
        if "No space left" in error.reason:
            raise OSError(errno.ENOSPC, error.reason) from error
        raise
