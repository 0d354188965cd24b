"""disk.info in an instance directory: Nova's own record of what format each disk has.

Nova keeps it because a guest writes the bytes of its disks and could claim any format (Nova's
bug 1221190). One JSON object: path to format.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from millpond.errors import DamagedRecord
from millpond.system import files

NAME = "disk.info"


def read(directory: Path) -> Mapping[str, str]:
    """The format by the disk's name, nothing without a file. The instances may have moved since,
    so of a path only the directory's name and the disk's count."""
    formats: dict[str, str] = {}
    for path, format in _read(directory / NAME).items():
        if _is_in(directory, path) and formats.setdefault(Path(path).name, format) != format:
            raise DamagedRecord(directory / NAME, f"it has two formats for {Path(path).name}")
    return formats


def put(directory: Path, disk: str, format: str) -> None:
    path = directory / NAME
    paths = {**_read(path), str(directory / disk): format}
    files.write_atomically(path, msgspec.json.encode(paths) + b"\n", mode=0o644)


def forget(directory: Path, disk: str) -> None:
    """Without the entry of a disk, and without the file when it was the last."""
    path = directory / NAME
    paths = _read(path)
    left = {
        each: format
        for each, format in paths.items()
        if not (_is_in(directory, each) and Path(each).name == disk)
    }
    if left and left != paths:
        files.write_atomically(path, msgspec.json.encode(left) + b"\n", mode=0o644)
    elif not left:
        files.remove(path)


def _read(path: Path) -> dict[str, str]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        return msgspec.json.decode(content or b"{}", type=dict[str, str])
    except msgspec.MsgspecError as error:
        raise DamagedRecord(path, str(error)) from error


def _is_in(directory: Path, path: str) -> bool:
    return Path(path).parent.name == directory.name
