"""What is asked of a host: the beginning of the way to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Purpose(StrEnum):
    CREATE = "create"
    RESIZE = "resize"
    MIGRATE = "migrate"
    LIVE_MIGRATE = "live migrate"
    EVACUATE = "evacuate"
    UNSHELVE = "unshelve"
    REBUILD = "rebuild"

    @property
    def stays(self) -> bool:
        """On its host, with what it has there."""
        return self is Purpose.REBUILD


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingRequest:
    server: str
    """Its id, which is its consumer's in Placement; of one that has none yet, its name."""
    image_format: str | None
    """disk_format as the image service declares it; anything at all may stand there."""
    boots_from_volume: bool = False
    vcpus: int
    memory: int
    root: int
    """Bytes, as those above and below; 0: no root disk of ours."""
    blank: int = 0
    """Ephemeral and swap disks together."""
    image_properties: Mapping[str, str] = field(default_factory=dict)
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    """The flavour's."""
    host: str = ""
    """The name of the one that it must be: forced, or where it is. It has to fit all the same."""
    avoid: frozenset[str] = frozenset()
    """Names of hosts that it must not be, such as the one that it leaves."""
    purpose: Purpose = Purpose.CREATE
