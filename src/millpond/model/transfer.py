"""What is agreed before bytes are downloaded: how long to wait, and what they are."""

import re
from dataclasses import dataclass
from typing import Self

from millpond.errors import BadOption

_LENGTHS = {"sha256": 64, "sha384": 96, "sha512": 128}


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Of who fetches. All together it is spent after (retries + 1) times the seconds."""

    connect_seconds: float
    read_seconds: float
    retries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    algorithm: str
    """As hashlib calls it."""
    value: str
    """In hexadecimal."""

    @classmethod
    def parse(cls, text: str) -> Self:
        algorithm, _, value = text.strip().lower().partition(":")
        if not re.fullmatch(f"[0-9a-f]{{{_LENGTHS.get(algorithm, 0)}}}", value) or not value:
            allowed = ", ".join(f"{name}:…" for name in _LENGTHS)
            reason = f"{text!r} is not an algorithm and its hexadecimal digest"
            raise BadOption("digest", reason, f"write {allowed} as the publisher gives it")
        return cls(algorithm=algorithm, value=value)
