"""What scheduling asks of a host."""

from collections.abc import Collection, Mapping
from typing import Protocol

from millpond.libvirt.facts import HostFacts
from millpond.libvirt.pool import Pool
from millpond.libvirt.pools import PoolWanted
from millpond.model.formats import ImageFormat
from millpond.scheduling.providers import CapacitySettings


class SchedulableHost(Protocol):
    """Only facts() and open_pool() speak to it, and raise what is wrong with it."""

    @property
    def name(self) -> str: ...

    @property
    def uri(self) -> str: ...

    @property
    def capacity(self) -> CapacitySettings: ...

    @property
    def settings_digest(self) -> str:
        """Of all that is configured for it: another one when something else is."""
        ...

    def facts(self) -> HostFacts: ...

    def disk_pools(self) -> Mapping[str, PoolWanted]:
        """All that new disks may come to be in, by their names."""
        ...

    def server_pools(self) -> Mapping[str, PoolWanted]:
        """These, and those of config drives and kernels, which are files for any backend."""
        ...

    def open_pool(self, name: str) -> Pool: ...

    def pools_by_image_type(self, hypervisor: str) -> Mapping[ImageFormat, str]:
        """The formats of images that it takes, each with the pool in which disks come to be."""
        ...

    def blank_disk_pools(self) -> Collection[str]:
        """Those in which ephemeral and swap disks come to be."""
        ...
