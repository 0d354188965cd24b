"""Nova's libvirt driver with disks that are volumes of our pools (docs/nova.md lists why each of
its methods had to be overridden)."""

import logging
from dataclasses import replace
from functools import cached_property
from typing import Any

import nova.conf
from nova.virt.libvirt.driver import LibvirtDriver

from millpond import config
from millpond.compute.single_disks import SingleDisks
from millpond.config import ImageSourceOption
from millpond.engine import Engine
from millpond.nova.explaining import explained
from millpond.nova.images import PoolBackend
from millpond.nova.records import InstanceRecords, NovaRecords

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)


class MillpondDriver(LibvirtDriver):  # type: ignore[misc]
    @cached_property
    def engine(self) -> Engine:
        settings = replace(config.settings_from(CONF), image_source=ImageSourceOption.GLANCE)
        return Engine(settings, records=NovaRecords(CONF.host))

    @property
    def image_backend(self) -> PoolBackend:
        return self._image_backend

    @image_backend.setter
    def image_backend(self, stock: Any) -> None:
        """Nova's constructor sets it, and asks it in the next line."""
        self._image_backend = PoolBackend(stock, lambda: self._disks)

    @property
    def _disks(self) -> SingleDisks:
        return self.engine.single_disks

    def _cleanup(self, context: Any, instance: Any, *args: Any, **kwargs: Any) -> None:
        super()._cleanup(context, instance, *args, **kwargs)
        if kwargs.get("cleanup_instance_disks"):
            self._delete_disks(instance)

    def _delete_disks(self, instance: Any, suffix: str = "") -> None:
        """The volume first: as long as it may be there, its record is."""
        records = InstanceRecords(instance)
        with explained():
            for record in records.all():
                if record.disk.role.endswith(suffix):
                    self._disks.delete(record.disk)
                    records.remove(record.disk.role)
