"""Templates that are used while their bytes arrive: what a host streams by, and how far it is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from millpond.model.image import Image
from millpond.model.transfer import Patience

ReadPart = Callable[[int, int], bytes]
"""So many bytes of an image from an offset on, as its source gives them: anything, until they are
verified. Raises MillpondError where it gives none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAccess:
    """By what a host streams."""

    sockets: Path
    """Directory of the sockets: the same on all hosts, so that a server can move."""
    reader: Callable[[], int]
    """QEMU's user, who alone may open them besides root; 0 if there is none besides root."""
    patience: Patience
    fill_rate: int
    """Bytes a second that are fetched ahead of need; 0 sets no bound."""
    fill_delay: float
    """Seconds in which nothing is fetched ahead of need: the first guest boots then."""
    trust_source: bool
    """What the source of an image says of its parts is believed."""
    serve: Sequence[str]
    """The words that start the process of a stream, but for its directory."""
    settle: Sequence[str]
    """And those of what publishes the template when all of it is there, but for its name."""
    find_obstacle: Callable[[Image], str]
    """Why disks of this image cannot begin before all of it is there; empty if they can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatus:
    """How far a template is that arrives."""

    arrived: int
    """Bytes, of zeros that need not be fetched, too."""
    size: int
    waits_for: str = ""
    """Why nothing arrives, in words."""
    fetched: int = 0
    """Bytes that the source was asked for by the present process."""
    connected: int = 0
    """Who reads at this moment."""
    served: bool = False
    """Whether a process serves it."""
    schema: int = 1

    @property
    def percent(self) -> int:
        return self.arrived * 100 // self.size if self.size else 100

    @property
    def summary(self) -> str:
        """For people."""
        if self.arrived >= self.size:
            return "complete" if self.served else "complete, and not served"
        if not self.served:
            return f"not served, {self.percent} %"
        return f"filling {self.percent} %" + (
            f", waits: {self.waits_for}" if self.waits_for else ""
        )
