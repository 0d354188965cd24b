"""What a server takes of its host, held where hosts are shared out."""

from typing import Protocol

from millpond.model.server import Server


class Claims(Protocol):
    """Both may be called again after they were interrupted."""

    def hold(self, server: Server) -> None:
        """As much as its record says, instead of what it had. Raises NoRoom, and it has what it
        had."""
        ...

    def release(self, server: Server) -> None: ...


class Unclaimed:
    """Nobody shares this host out."""

    def hold(self, server: Server) -> None:
        """There is nobody to ask."""

    def release(self, server: Server) -> None:
        """Nor to tell."""
