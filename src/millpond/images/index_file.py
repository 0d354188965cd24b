"""The index of an image as a file, for whoever publishes the image next to it: a line that says of
what it is, and the list of digests."""

import json
import re

from millpond.errors import BadOption, Tool
from millpond.images.index import Index, index_length

_FORMAT = 1
_WORD = "millpond_index"
LONGEST = 256 * 1024 * 1024
"""Bytes of an index that are read: that of an image of 2 TiB."""


def format_index_file(index: Index, digest: str) -> bytes:
    """``digest``: SHA-512 of the image."""
    head = {_WORD: _FORMAT, "size": index.size, "sha512": digest, "root": index.root}
    return json.dumps(head).encode() + b"\n" + index.digests


def parse_index_file(content: bytes, option: str) -> tuple[Index, str]:
    """And the SHA-512 of the image. Nothing is believed but by its root. Raises BadOption."""
    first, _, digests = content.partition(b"\n")
    try:
        head = json.loads(first)
        version, size = int(head[_WORD]), int(head["size"])
        digest, root = str(head["sha512"]), str(head["root"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _refusal(option, "this is not an index of an image") from error
    if version != _FORMAT:
        raise _refusal(option, f"it is of version {version}, and {_FORMAT} is known here")
    index = Index(size=size, digests=digests)
    if size <= 0 or len(digests) != index_length(size) or index.root != root:
        raise _refusal(option, "it is damaged, or cut off")
    if not re.fullmatch("[0-9a-f]{128}", digest):
        raise _refusal(option, "it states no SHA-512 of the image")
    return index, digest


def _refusal(option: str, reason: str) -> BadOption:
    advised = f"its publisher makes one by '{Tool.INDEX_IMAGE}'"
    return BadOption(option, reason, advised)
