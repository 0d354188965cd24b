"""An image as its source describes it: a claim, until its bytes are inspected."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from millpond.errors import BadOption
from millpond.model.formats import ImageFormat
from millpond.model.names import ImageId
from millpond.model.transfer import Digest

KERNEL_ID = "kernel_id"
RAMDISK_ID = "ramdisk_id"
"""Glance's names for the images that a disk without a boot loader is booted with."""


DISKS = "millpond_disks"
"""The images of the other disks of the server whose root disk an image holds."""
ROOT_IMAGE = "millpond_root_image"
"""The image of the root disk of the server of which an image holds another disk."""
SIGNATURE_PROPERTIES = (
    "img_signature",
    "img_signature_hash_method",
    "img_signature_key_type",
    "img_signature_certificate_uuid",
)
_DISK = re.compile(r"(disk\.(?:data|eph)\d{1,2})=([\w-]+)")


def state_disks(images: Mapping[str, ImageId]) -> dict[str, str]:
    """As a property: the image of each disk, by its role."""
    stated = " ".join(f"{role}={id}" for role, id in images.items())
    return {DISKS: stated} if stated else {}


def disks_of(properties: Mapping[str, str]) -> dict[str, ImageId]:
    """What that property says; whoever may add images may have written anything."""
    found: dict[str, ImageId] = {}
    for each in properties.get(DISKS, "").split():
        match = _DISK.fullmatch(each)
        if not match or match[1] in found:
            reason = f"{each!r} is not a disk and its image"
            advised = "write such as disk.data0=ID, each disk once"
            raise BadOption(f"image property {DISKS}", reason, advised)
        found[match[1]] = ImageId(match[2])
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    id: ImageId
    name: str
    format: ImageFormat
    size: int
    virtual_size: int
    """0 if its source does not say it. Of one image by its name or id that is so only where all of
    its bytes are needed to tell."""
    digest: str
    """Of the image's bytes, in hexadecimal."""
    created: str
    properties: Mapping[str, str] = field(default_factory=dict)
    """Under Glance's names: hw_disk_bus, hw_firmware_type, …"""
    digest_algorithm: str = "sha512"
    """Only an image service may have another one."""
    trusted: tuple[str, ...] = ()
    """Ids of the certificates to which the signer's must lead, for the server that it is wanted
    for; empty where the configuration alone says whether its signature counts."""
    index_root: str = ""
    """SHA-256 over the SHA-256 of each 256 KiB, in hexadecimal; empty if its source has none."""
    location: str = ""
    """Where its bytes are, if its source has not received them; without what is secret of that."""
    description: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Both are for people; only images of the catalogue have them."""

    @property
    def expected(self) -> Digest:
        return Digest(algorithm=self.digest_algorithm, value=self.digest)

    @property
    def signature(self) -> str:
        """All that its source says of how it is signed, as one claim; empty if any of it is
        missing."""
        stated = [self.properties.get(name, "") for name in SIGNATURE_PROPERTIES]
        return " ".join(stated) if all(stated) else ""

    def needs(self, other: ImageId) -> bool:
        """Whether the other one is its kernel or its ramdisk, or of another disk of its server."""
        named = self.properties.get(DISKS, "").split()
        with_it = (each.partition("=")[2] for each in named)
        return other in (
            self.properties.get(KERNEL_ID),
            self.properties.get(RAMDISK_ID),
            *with_it,
        )
