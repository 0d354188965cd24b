"""Numbers and lists as people write them."""

from collections.abc import Sequence

_SHOWN = 8


def counted(number: int, thing: str, things: str = "") -> str:
    """``1 volume``, ``2 volumes``."""
    return f"{number} {thing if number == 1 else things or f'{thing}s'}"


def some(names: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
