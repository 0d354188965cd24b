"""What a host can do, as traits; and which of a provider's traits are ours to change."""

from collections.abc import Iterable
from itertools import chain

import os_traits

from millpond.model.formats import ImageFormat

BLANK_DISKS = "CUSTOM_MILLPOND_BLANK_DISKS"
"""Of a pool in which ephemeral and swap disks land."""
SHARED_POOL = "CUSTOM_MILLPOND_SHARED_POOL"
"""Tells our sharing providers from others'."""
CUSTOM = frozenset({BLANK_DISKS, SHARED_POOL})
"""These have to be made in Placement before a provider can have them."""
DISABLED: str = os_traits.COMPUTE_STATUS_DISABLED
SHARES: str = os_traits.MISC_SHARES_VIA_AGGREGATE

IMAGE_TYPES: dict[str, str] = {
    format.value: getattr(os_traits, f"COMPUTE_IMAGE_TYPE_{format.name}") for format in ImageFormat
}
"""Format to trait: the one table, for what is reported and for what is asked for (B34, B38)."""

BUSES: dict[str, str] = {
    bus: getattr(os_traits, f"COMPUTE_STORAGE_BUS_{bus.upper()}")
    for bus in ("virtio", "scsi", "sata", "ide", "usb")
}
"""hw_disk_bus to trait, for the buses that a disk of ours can be at."""

_ARCH = "HW_ARCH_"
ARCHITECTURES: dict[str, str] = {
    name.removeprefix(_ARCH).lower(): name for name in os_traits.get_traits(prefix=_ARCH)
}
"""libvirt's and Glance's name of an architecture to trait. os-traits has none for RISC-V, for
LoongArch and for armv7l, which is its ARMV7."""
_OTHER_NAMES = {
    **dict.fromkeys(("amd64", "x64", "x86-64"), "x86_64"),
    **dict.fromkeys(("i386", "i486", "i586", "x86"), "i686"),
    "arm64": "aarch64",
    "armv7l": "armv7",
    "armv6l": "armv6",
    "powerpc": "ppc",
}

OURS = frozenset(
    chain(IMAGE_TYPES.values(), BUSES.values(), ARCHITECTURES.values(), CUSTOM, (DISABLED, SHARES))
)
"""Published and withdrawn by us. Whatever else a provider has is left alone (B38)."""

_WITH_IMAGES = frozenset({"qemu", "kvm", "parallels"})


def of_architecture(name: str) -> str | None:
    plain = name.strip().lower()
    return ARCHITECTURES.get(_OTHER_NAMES.get(plain, plain))


def of_images(hypervisor: str, formats: Iterable[ImageFormat]) -> frozenset[str]:
    """Of any other type of hypervisor nothing is known to work, so nothing is reported."""
    if hypervisor.lower() not in _WITH_IMAGES:
        return frozenset()
    return frozenset(IMAGE_TYPES[each] for each in formats)


def of_buses(names: Iterable[str]) -> frozenset[str]:
    return frozenset(BUSES[each] for each in names if each in BUSES)


def of_architectures(names: Iterable[str]) -> frozenset[str]:
    return frozenset(filter(None, map(of_architecture, names)))
