"""What a file's name says of the image in it. The content is asked only for advice."""

import os
import stat
from pathlib import Path, PurePath

from millpond.errors import BadOption
from millpond.images.formats.inspection import HEAD
from millpond.images.formats.recognition import recognise
from millpond.images.packing import Packing
from millpond.images.receive import STANDARD_INPUT, opening
from millpond.model.formats import ImageFormat

_FORMATS = {
    ".qcow2": ImageFormat.QCOW2,
    ".raw": ImageFormat.RAW,
    ".vmdk": ImageFormat.VMDK,
    ".vdi": ImageFormat.VDI,
    ".vhd": ImageFormat.VHD,
    ".vpc": ImageFormat.VHD,
    ".vhdx": ImageFormat.VHDX,
    ".iso": ImageFormat.ISO,
    ".hds": ImageFormat.PLOOP,
    ".hdd": ImageFormat.PLOOP,
    ".ploop": ImageFormat.PLOOP,
    ".ami": ImageFormat.AMI,
    ".aki": ImageFormat.AKI,
    ".ari": ImageFormat.ARI,
}
# Part of no name, but people give it to raw and to qcow2 images alike.
_SAYS_NOTHING = ".img"

_CHOICES = f"say it with --disk-format, which is one of {', '.join(ImageFormat)}"


def stated_name(path: Path) -> str:
    if path == STANDARD_INPUT:
        raise BadOption("name", "standard input has no name", "give the image one")
    if os.path.isdir(path):
        path = path.resolve()  # '.' has no name
    return name_elsewhere(path.name)


def name_elsewhere(name: str) -> str:
    """Of a file that is not on this machine."""
    path = PurePath(split_packing(name)[0])
    return path.stem if path.suffix.lower() in (*_FORMATS, _SAYS_NOTHING) else path.name


def stated_format(path: Path) -> ImageFormat:
    if os.path.isdir(path):
        return ImageFormat.PLOOP  # no other image is a directory
    name, packing = split_packing(path.name)
    if stated := _FORMATS.get(PurePath(name).suffix.lower()):
        return stated
    raise _refusal(str(path), _CHOICES if packing else _advice(path))


def format_elsewhere(name: str) -> ImageFormat:
    """There nothing but the name can be looked at."""
    if stated := _FORMATS.get(PurePath(split_packing(name)[0]).suffix.lower()):
        return stated
    raise _refusal(name, _CHOICES)


def split_packing(name: str) -> tuple[str, Packing | None]:
    """The name of what is packed in a file, and how."""
    path = PurePath(name)
    suffix = path.suffix.lower()
    return (path.stem, Packing(suffix)) if suffix in set(Packing) else (name, None)


def stated_packing(name: str, format: ImageFormat) -> Packing | None:
    """Kernels and ramdisks stay packed: who boots them unpacks them."""
    return split_packing(name)[1] if format.can_be_a_disk else None


def _refusal(name: str, advice: str) -> BadOption:
    reason = f"the name {name!r} does not say which format it is"
    return BadOption("disk_format", reason, advice)


def _advice(path: Path) -> str:
    """A guess is for people: whoever can write the file decides what it looks like."""
    found = recognise(_head(path))
    if len(found) == 1 and (name := min(found)) in set(ImageFormat):
        return f"it looks like {name}: if you expect that, say --disk-format {name}"
    return _CHOICES


def _head(path: Path) -> bytes:
    """Nothing, if reading it would take it away from who reads it next."""
    with opening(path) as descriptor:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return os.pread(descriptor, HEAD, 0) if is_file else b""
