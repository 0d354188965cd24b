"""Whether a raw file that somebody else wrote holds an image.

It is inspected like any image, and its length must be right. Of a raw image all of it is compared
with the image's digest, and with its signature where one is asked for; of one that was converted
there is none to compare with, so that it is refused where signatures count.
"""

import hashlib
import os
from io import BufferedReader
from pathlib import Path

from millpond.errors import ImageRefused
from millpond.images.formats.inspection import Inspection
from millpond.images.source import Stream
from millpond.model.formats import DiskFormat, ImageFormat
from millpond.model.image import Image
from millpond.system.files import CHUNK


def find_fault(path: Path, image: Image, stream: Stream) -> str:
    """What is wrong with it, in words; empty if it holds the image."""
    return _find_flaw(path, image) or _find_missing_proof(path, image, stream)


def _find_flaw(path: Path, image: Image) -> str:
    size = path.stat().st_size
    if size != image.virtual_size:
        return f"it has {size} bytes instead of {image.virtual_size}"
    with path.open("rb") as file:
        try:
            Inspection(ImageFormat.RAW, image.name).look_at(
                lambda offset, length: os.pread(file.fileno(), length, offset), size
            )
        except ImageRefused as error:
            return error.reason
        if image.format.content is DiskFormat.RAW and not _has_digest(file, image):
            return f"its {image.digest_algorithm} is not the image's"
    return ""


def _find_missing_proof(path: Path, image: Image, stream: Stream) -> str:
    """Why its signature, if one is asked for, is not that of this file."""
    if stream.begin_proof is None:
        return ""
    if image.format.content is not DiskFormat.RAW:
        return "it was converted, and its signature cannot be verified"
    proof = stream.begin_proof()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(CHUNK):
            proof.eat(chunk)
    try:
        proof.finish()
    except ImageRefused as error:
        return error.reason
    return ""


def _has_digest(file: BufferedReader, image: Image) -> bool:
    return hashlib.file_digest(file, image.digest_algorithm).hexdigest() == image.digest
