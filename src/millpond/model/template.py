"""A template: an image's bytes, inspected, complete, in the pool that disks are made from."""

from dataclasses import dataclass
from enum import StrEnum

from millpond.model.formats import DiskFormat
from millpond.model.names import ImageId

SCHEMA = 1
"""Version of a template's record."""


class Prepared(StrEnum):
    """How the template's bytes came into the pool."""

    HARD_LINK = "hard link"
    REFLINK = "reflink"
    COPY = "copy"
    DOWNLOAD = "download"
    CONVERSION = "conversion"
    FORMATTING = "formatting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    image: ImageId
    """Empty for the template of a swap or ephemeral disk."""
    image_digest: str
    pool: str
    volume: str
    format: DiskFormat
    virtual_size: int
    size: int
    """Length of the file, not the space that it occupies."""
    prepared: Prepared
    digest: str | None
    """SHA-512 of the template's own bytes; None until a scrub has read a converted one."""
    created: str
    schema: int = SCHEMA
