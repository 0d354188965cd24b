"""An image as its source describes it: a claim, until its bytes are inspected."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from millpond.model.formats import ImageFormat
from millpond.model.names import ImageId
from millpond.model.transfer import Digest

KERNEL_ID = "kernel_id"
RAMDISK_ID = "ramdisk_id"
"""Glance's names for the images that a disk without a boot loader is booted with."""


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

    @property
    def expected(self) -> Digest:
        return Digest(algorithm=self.digest_algorithm, value=self.digest)

    def boots_with(self, other: ImageId) -> bool:
        """Whether the other one is its kernel or its ramdisk."""
        return other in (self.properties.get(KERNEL_ID), self.properties.get(RAMDISK_ID))
