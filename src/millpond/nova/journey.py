"""What a server that runs takes along to another host, between the two drivers and libvirt."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from millpond.nova.carrying import Way
from millpond.system.libvirt_migration import UNSAFE
from millpond.xml.carrying import name_by_path, without_backing


class Journey(msgspec.Struct, frozen=True, kw_only=True, tag_field="driver", tag="millpond"):
    """What both ends have to know, and Nova has no field for: it travels in that of the image
    type."""

    host: str
    """Where it goes."""
    ways: dict[str, Way] = {}
    """By role."""

    def carries(self, role: str) -> bool:
        return self.ways[role] is not Way.SHARED


def read_journey(migrate_data: Any) -> Journey | None:
    """None: one end has another driver, or the server has no disks of ours."""
    if migrate_data is None or not migrate_data.obj_attr_is_set("image_type"):
        return None
    try:
        return msgspec.json.decode(migrate_data.image_type, type=Journey)
    except msgspec.MsgspecError:
        return None


class LeavingDomain:
    """libvirt's domain, which arrives with disks in files or devices, and is defined there with
    volumes. What arrives as one image is backed by nothing."""

    def __init__(
        self,
        domain: Any,
        *,
        paths: Mapping[str, str],
        devices: Collection[str],
        whole: Collection[str],
        shares: bool,
    ) -> None:
        self._domain = domain
        self._paths = paths
        self._devices = devices
        self._whole = whole
        self._flags = UNSAFE if shares else 0  # libvirt cannot know what we have proven

    def __getattr__(self, name: str) -> Any:
        return getattr(self._domain, name)

    def migrateToURI3(self, uri: str, params: dict[str, Any], flags: int) -> Any:  # noqa: N802
        defined = without_backing(params["destination_xml"], self._whole)
        running = name_by_path(defined, self._paths, self._devices)
        there = {**params, "destination_xml": running, "persistent_xml": defined}
        return self._domain.migrateToURI3(uri, params=there, flags=flags | self._flags)
