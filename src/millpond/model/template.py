"""A template: an image's bytes, inspected, complete, in the pool that disks are made from."""

from dataclasses import dataclass
from enum import StrEnum

from millpond.model.formats import DiskFormat
from millpond.model.layer import FileSource, IscsiSource, Layer, NbdSource, RbdSource
from millpond.model.names import ImageId

SCHEMA = 1
"""Version of a template's record."""


class Prepared(StrEnum):
    """How the template's bytes came into the pool; those of a link did not."""

    HARD_LINK = "hard link"
    REFLINK = "reflink"
    COPY = "copy"
    DOWNLOAD = "download"
    UPLOAD = "upload"
    CONVERSION = "conversion"
    FORMATTING = "formatting"
    LINK = "link"
    STREAM = "stream"
    ADOPTION = "adoption"
    """Nova's own driver had made it before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Where the bytes of a template are that were not copied. One of the sources is set."""

    location: str
    """As the image's source names it: cinder://… or rbd://…; of a stream, where it reads."""
    attachment: str = ""
    """By which Cinder knows that we use its volume."""
    rbd: RbdSource | None = None
    iscsi: IscsiSource | None = None
    file: FileSource | None = None
    nbd: NbdSource | None = None
    """Of a template whose bytes are still arriving: a link that becomes a volume."""

    @property
    def source(self) -> RbdSource | IscsiSource | FileSource | NbdSource:
        found = self.rbd or self.iscsi or self.file or self.nbd
        assert found is not None  # who makes a link states where it leads
        return found


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
    link: Link | None = None
    signature: str = ""
    """The image's, if it was verified while the bytes passed that this was made from."""
    schema: int = SCHEMA

    @property
    def streams(self) -> bool:
        """Its bytes are still arriving."""
        return self.link is not None and self.link.nbd is not None

    @property
    def linked_layer(self) -> Layer | None:
        """What backs an overlay where no volume of the base pool has the bytes."""
        if self.link is None:
            return None
        length = None if self.link.nbd else self.size  # an export has the image's own length
        return Layer(source=self.link.source, format=self.format, length=length)
