"""What there must be: servers with the bytes of their disks, images with theirs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

Disks = Mapping[str, bytes]
"""What each disk holds, by its role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerModel:
    name: str
    image: str
    disks: Disks
    on: bool = False

    @property
    def shape(self) -> dict[str, int]:
        return {role: len(content) for role, content in self.disks.items()}

    def with_disk(self, role: str, content: bytes) -> "ServerModel":
        return replace(self, disks={**self.disks, role: content})

    def without_disk(self, role: str) -> "ServerModel":
        return replace(self, disks={key: v for key, v in self.disks.items() if key != role})

    def grown(self, role: str, size: int) -> "ServerModel":
        return self.with_disk(role, self.disks[role].ljust(size, b"\0"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageModel:
    name: str
    content: bytes
    """Of the disk that it holds."""


@dataclass(slots=True)
class Model:
    servers: dict[str, ServerModel] = field(default_factory=dict)
    images: dict[str, ImageModel] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What an operation makes of the model; None: it is gone."""

    kind: str
    words: tuple[str, ...]
    servers: Mapping[str, ServerModel | None] = field(default_factory=dict)
    images: Mapping[str, ImageModel | None] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()
    """Images that must stay while it runs."""

    def conflicts(self, other: "Change") -> bool:
        return bool(
            self.servers.keys() & other.servers.keys()
            or self.images.keys() & other.images.keys()
            or self.needs & other.images.keys()
            or other.needs & self.images.keys()
        )
