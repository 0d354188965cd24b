"""How large a server is."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from millpond.model.sizes import GiB, MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavor:
    name: str = ""
    vcpus: int = 1
    memory: int = 512 * MiB
    disk: int = 0
    """Size of the root disk; 0 means as large as the image."""
    ephemeral: int = 0
    swap: int = 0
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    """What hosts must have for it, by Nova's names."""


SMALL = Flavor(name="small", vcpus=1, memory=1 * GiB)
