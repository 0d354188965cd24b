"""A base in the cache that Nova's own driver has made, taken over as the template of its name.

That of an image is inspected like any image, and its length must be right. Of a raw image all of
it is compared with the image's digest, and with its signature where one is asked for; of one that
Nova has converted there is none to compare with, so that it is not taken where signatures count.
It stays where it is: disks of Nova's may be backed by it.
"""

import hashlib
import logging
import os
from datetime import UTC, datetime
from io import BufferedReader
from pathlib import Path

from millpond.errors import ImageRefused
from millpond.images.formats.inspection import Inspection
from millpond.images.source import ImageSource, Stream
from millpond.model.formats import DiskFormat, ImageFormat
from millpond.model.image import Image
from millpond.model.names import template_name
from millpond.model.template import Prepared, Template
from millpond.system.files import CHUNK
from millpond.templates.former_bases import may_be_novas, take
from millpond.templates.store import TemplateStore

LOG = logging.getLogger(__name__)


def adopt(
    store: TemplateStore, images: ImageSource, image: Image, format: DiskFormat
) -> Template | None:
    """None where there is no such base, or it is not what it should be: then it is left alone.
    The template's lock is held. Broken off, it was not adopted."""
    path = store.cache / template_name(image.id, format)
    if format is not DiskFormat.RAW or not may_be_novas(store, path):
        return None
    if fault := _fault(path, image) or _unproven(path, image, images.open(image)):
        LOG.warning("%s is not taken for the base of image %s: %s", path, image.id, fault)
        return None
    return take(store, path, _described(path, image, store.pool.name))


def _fault(path: Path, image: Image) -> str:
    """What is wrong with it, in words."""
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
        if _is_raw(image) and not _has_digest(file, image):
            return f"its {image.digest_algorithm} is not the image's"
    return ""


def _unproven(path: Path, image: Image, stream: Stream) -> str:
    """Why its signature, if one is asked for, is not that of this file."""
    if stream.begin_proof is None:
        return ""
    if not _is_raw(image):
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


def _is_raw(image: Image) -> bool:
    return image.format.content is DiskFormat.RAW


def _has_digest(file: BufferedReader, image: Image) -> bool:
    return hashlib.file_digest(file, image.digest_algorithm).hexdigest() == image.digest


def _described(path: Path, image: Image, pool: str) -> Template:
    known = _is_raw(image) and image.digest_algorithm == "sha512"
    size = path.stat().st_size
    return Template(
        image=image.id,
        image_digest=image.digest,
        pool=pool,
        volume=path.name,
        format=DiskFormat.RAW,
        virtual_size=size,
        size=size,
        prepared=Prepared.ADOPTION,
        digest=image.digest if known else None,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
