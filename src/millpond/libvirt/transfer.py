"""Whole volumes to this machine; what came is compared with how long they are."""

from collections.abc import Iterator
from pathlib import Path

from millpond.errors import HostProblem
from millpond.libvirt.pool import Pool
from millpond.model.volume import Volume
from millpond.system import streams
from millpond.system.files import Progress, silent


def download(pool: Pool, name: str, target: Path, progress: Progress = silent) -> None:
    """Into a new file, with the holes that it has there."""
    expected = pool.get(name)
    _refuse_unless_whole(expected, streams.written(pool.pieces(name), target, progress))


def bytes_of(pool: Pool, name: str) -> Iterator[bytes]:
    expected, length = pool.get(name), 0
    for content in streams.plain(pool.pieces(name)):
        length += len(content)
        yield content
    _refuse_unless_whole(expected, length)


def _refuse_unless_whole(expected: Volume, length: int) -> None:
    """libvirt has been seen to end a download early, without an error (trap 21)."""
    if length != expected.length:
        volume = f"{expected.pool}/{expected.name}"
        raise HostProblem(
            f"only {length} of {expected.length} bytes came of volume {volume}",
            "try again; if it stays so, look into libvirtd's log on the host",
        )
