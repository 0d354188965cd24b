"""An image that is added without its bytes: what must be seen of it is read, verified by its
index, and inspected."""

import hashlib

from millpond.errors import BadOption, CannotResume, FetchFailed, ImageRefused
from millpond.images.formats.inspection import Inspection
from millpond.images.index import INDEX_CHUNK, Index
from millpond.images.intake import Referral
from millpond.model.formats import DiskFormat, ImageFormat
from millpond.model.stream import ReadPart
from millpond.system.http import Resource

_READ_IN_PARTS = (DiskFormat.RAW, DiskFormat.QCOW2)
_DIGEST = hashlib.sha256().digest_size


def look(
    url: str, resource: Resource, declared: tuple[str, ImageFormat], index: Index, digest: str
) -> Referral:
    """``digest``: SHA-512 of the whole, which nobody compares before all of it is there."""
    name, format = declared
    if format.content not in _READ_IN_PARTS or not format.can_be_a_disk:
        reason = f"{format} is converted, for which all of it is needed"
        raise BadOption("--stream", reason, "leave it out: the image is downloaded then")
    try:
        read = _verified(name, resource.part, index)
        finding = Inspection(format, name).look_at(read, index.size)
    except CannotResume as error:
        reason = "its server gives no parts of it (HTTP Range)"
        raise BadOption(
            "--stream", reason, "leave it out: the image is downloaded then"
        ) from error
    return Referral(
        name=name,
        format=format,
        url=url,
        location=resource.shown,
        index=index,
        digest=digest,
        virtual_size=finding.virtual_size,
    )


def _verified(name: str, read_part: ReadPart, index: Index) -> ReadPart:
    seen: dict[int, bytes] = {}

    def chunk(number: int) -> bytes:
        if number not in seen:
            start = number * INDEX_CHUNK
            content = read_part(start, min(INDEX_CHUNK, index.size - start))
            expected = index.digests[number * _DIGEST : (number + 1) * _DIGEST]
            if hashlib.sha256(content).digest() != expected:
                reason = f"its bytes from {start} on are not those of its index"
                advised = "the index is of another version of it, or the server has changed it"
                raise ImageRefused(name, reason, advised)
            seen[number] = content
        return seen[number]

    def read(offset: int, length: int) -> bytes:
        end = min(offset + length, index.size)  # as a file is read
        first = offset // INDEX_CHUNK
        found = b"".join(map(chunk, range(first, -(-end // INDEX_CHUNK))))
        start = offset - first * INDEX_CHUNK
        return found[start : start + length]

    return read


def fetch_index(resource: Resource, longest: int) -> bytes:
    """Raises FetchFailed for what is longer than any index."""
    found = bytearray()
    for piece in resource.chunks(0):
        found += piece
        if len(found) > longest:
            raise FetchFailed(resource.shown, "it is larger than any index")
    return bytes(found)
