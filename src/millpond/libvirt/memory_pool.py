"""A pool in memory, under the same contract tests as libvirt's."""

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

from millpond.errors import NoSpace, Unsupported, VolumeExists, VolumeNotFound
from millpond.libvirt.pool import CAPABILITIES, PoolType
from millpond.model.layer import CephAccess, Source, VolumeSource
from millpond.model.sizes import GiB, format_size
from millpond.model.volume import PoolUsage, Volume, VolumeSpec
from millpond.system import streams
from millpond.system.streams import Piece


class MemoryPool:
    """Counts a copy's whole capacity as allocated, and an empty volume's where none is sparse."""

    def __init__(
        self,
        name: str,
        *,
        type_: PoolType = PoolType.DIR,
        size: int = GiB,
        contents: dict[str, bytes] | None = None,
        local: bool = False,
    ) -> None:
        """``contents``: what volumes begin with, by their paths; pools that copy from each other
        share it."""
        self.name = name
        self.path = f"/{name}"
        self.ceph: CephAccess | None = None
        self.capabilities = CAPABILITIES[type_]
        self.local = local
        self._size = size
        self._volumes: dict[str, Volume] = {}
        self._contents = {} if contents is None else contents
        self._lock = threading.Lock()

    def find(self, name: str) -> Volume | None:
        return self._volumes.get(name)

    def get(self, name: str) -> Volume:
        if volume := self.find(name):
            return volume
        raise VolumeNotFound(self.name, name)

    def volumes(self) -> list[Volume]:
        return list(self._volumes.values())

    def names(self) -> list[str]:
        return sorted(self._volumes)

    def source(self, name: str) -> Source:
        return VolumeSource(pool=self.name, volume=name)

    def create(self, spec: VolumeSpec) -> Volume:
        self.capabilities.refuse(spec, self.name)
        return self._add(spec, spec.capacity, 0 if self.capabilities.sparse else spec.capacity)

    def create_from(self, spec: VolumeSpec, source: Volume) -> Volume:
        self.capabilities.refuse(spec, self.name)
        self.capabilities.refuse_source(source, self.name)
        made = self._add(spec, max(spec.capacity, source.capacity), source.capacity)
        self._contents[made.path] = self._contents.get(source.path, b"")
        return made

    def resize(self, name: str, capacity: int) -> None:
        volume = self.get(name)
        if not self.capabilities.grows:
            raise Unsupported(f"growing volume {name}", f"pool {self.name} cannot do it")
        if capacity < volume.capacity:
            raise Unsupported(f"making volume {name} smaller", "what lies behind would be lost")
        self._volumes[name] = replace(volume, capacity=capacity)

    def upload(self, name: str, content: bytes) -> None:
        if not self.capabilities.uploads:
            raise Unsupported(f"writing to volume {name}", f"pool {self.name} takes no uploads")
        volume = self.get(name)
        before = self._contents.get(volume.path, b"")
        self._volumes[name] = replace(
            volume,
            allocation=max(volume.allocation, len(content)),
            length=max(volume.length, len(content)),
            changed=self._now(),
        )
        self._contents[volume.path] = content + before[len(content) :]

    def send(self, name: str, pieces: Iterable[Piece], length: int) -> None:
        content = b"".join(streams.plain(pieces))
        if len(content) != length:
            raise Unsupported(f"{len(content)} bytes for volume {name}", f"it was to be {length}")
        self.upload(name, content)

    def pieces(self, name: str) -> Iterator[Piece]:
        volume = self.get(name)
        yield self._contents.get(volume.path, b"").ljust(volume.length, b"\0")

    def delete(self, name: str) -> None:
        self._contents.pop(self.get(name).path, None)
        del self._volumes[name]

    def refresh(self) -> None:
        """Nobody puts anything here behind our back."""

    def usage(self) -> PoolUsage:
        used = sum(each.allocation for each in self._volumes.values())
        return PoolUsage(capacity=self._size, allocation=used, available=self._size - used)

    def _now(self) -> str:
        return str(time.time_ns())

    def _add(self, spec: VolumeSpec, capacity: int, allocation: int) -> Volume:
        with self._lock:
            if spec.name in self._volumes:
                raise VolumeExists(self.name, spec.name)
            if allocation > (free := self.usage().available):
                raise NoSpace(f"pool {self.name}", format_size(allocation), format_size(free))
            volume = Volume(
                pool=self.name,
                name=spec.name,
                path=f"{self.path}/{spec.name}",
                capacity=capacity,
                allocation=allocation,
                length=capacity,
                read_only=spec.read_only,
                changed=self._now(),
                backing_path=spec.backing.path if spec.backing else None,
                reported_format=spec.format,
            )
            self._volumes[spec.name] = volume
            return volume
