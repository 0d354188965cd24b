"""The names that tie servers, images, volumes and templates together."""

import hashlib
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import NewType, Protocol, TypeVar

from millpond.errors import Ambiguous, BadName
from millpond.model.formats import DiskFormat
from millpond.model.sizes import MiB

ServerId = NewType("ServerId", str)
ImageId = NewType("ImageId", str)

# A server's name becomes the domain's name, which libvirt uses as a file name; 255 bytes is
# what a file name may hold, and libvirt appends suffixes of its own.
_MOST_BYTES = 200
_NAME = re.compile(r"[^\W_][\w.+ -]{0,199}")

_SHORTEST_ID = 8
"""Characters by which an id may be said where nothing is changed: as far as the first hyphen."""

UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_VOLUME = re.compile(rf"({UUID})_(.+)")


def check_name(kind: str, name: str) -> str:
    """The name, if it can safely be a domain's name, a file's name and a word on a terminal."""
    if not _NAME.fullmatch(name) or name != name.strip() or len(name.encode()) > _MOST_BYTES:
        raise BadName(kind, name)
    return name


def check_id(kind: str, id: str) -> str:
    if not re.fullmatch(UUID, id):
        raise BadName(kind, id)
    return id


class Named(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=Named)


def pick(kind: str, known: Iterable[N], said: str, *, shortened: bool = False) -> N | None:
    """The one of this name or id; ``shortened``, of one whose id begins so. That is not for what
    changes something: a name that is gone may be how the id of another begins."""
    everything = list(known)
    found = [each for each in everything if said in (each.id, each.name)]
    found = found or (begun_by(everything, said) if shortened else [])
    if len(found) > 1:
        raise Ambiguous(kind, said, tuple(each.id for each in found))
    return found[0] if found else None


def begun_by(known: Iterable[N], said: str) -> list[N]:
    """Those whose ids begin so."""
    return [each for each in known if len(said) >= _SHORTEST_ID and each.id.startswith(said)]


def did_you_mean(known: Iterable[str], said: str) -> str:
    """For the beginning of a hint: the closest name, if one is close."""
    names = {each.lower(): each for each in known}
    found = [names[each] for each in get_close_matches(said.lower(), names, n=1)]
    return f"did you mean {found[0]!r}? " if found else ""


def printable(text: str, keep: str = "") -> str:
    """Words of others, such as the name of an image in Glance, as they may reach a terminal:
    what would move its cursor, colour it or turn its lines round is spelt out."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode()
        for each in text
    )


def volume_name(server: ServerId, role: str) -> str:
    """The volume of a server's disk: ``{instance-uuid}_{name}`` (B17)."""
    return f"{server}_{role}"


def grown_name(volume: str) -> str:
    """What lies next to a volume while that is being copied to become larger."""
    return f"{volume}.grown"


def rebuilt_name(volume: str) -> str:
    """The disk that comes after this one: no two of them have one name, and none is renamed."""
    suffix = ".rebuilt"
    return volume.removesuffix(suffix) if volume.endswith(suffix) else f"{volume}{suffix}"


def extracted_name(volume: str) -> str:
    """What a volume holds, as one image next to it, while that is fetched from another machine."""
    return f"{volume}.extracted"


def split_volume_name(name: str) -> tuple[ServerId, str] | None:
    """The server and the role that a volume is named for; None for a name of another kind."""
    match = _VOLUME.fullmatch(name)
    return (ServerId(match[1]), match[2]) if match else None


def overlay_name(volume: str) -> str:
    """The volume that takes what a running server writes while its disk is copied."""
    return f"{volume}.snapshot"


def rebased_name(overlay: str) -> str:
    """What comes after this overlay, above the same disk on another base."""
    return f"{overlay}.rebased"


def held_name(template: str, owner: str) -> str:
    """Of what keeps the image of a linked template from being removed in its Ceph cluster."""
    return f"{template}.{owner}.held"


def template_name(image: ImageId, format: DiskFormat) -> str:
    """The template of an image: as Nova names a raw base, with a suffix for others (B16)."""
    digest = hashlib.sha1(image.encode(), usedforsecurity=False).hexdigest()
    return digest if format is DiskFormat.RAW else f"{digest}.{format}"


def blank_template_name(content: str, size: int, filesystem: str) -> str:
    """The template of a swap or ephemeral disk, shared by all of its size: much as Nova's."""
    return "_".join(filter(None, (content, str(-(-size // MiB)), filesystem)))


def filesystem_of(template: str) -> str:
    """Of a blank template, by its name; empty for a swap area."""
    return "".join(template.split("_")[2:])
