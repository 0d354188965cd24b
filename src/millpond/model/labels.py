"""Labels: what people say of servers and images, to find them by."""

import re
from collections.abc import Callable, Iterable, Mapping

from millpond.errors import BadOption

Labels = Mapping[str, str]

_KEY = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?")
_LONGEST_VALUE = 255
_ADVICE = (
    "write such as tier=web; a key has letters, digits, '.', '_', '/' and '-', 63 at the most"
)


def parse_labels(texts: Iterable[str]) -> dict[str, str]:
    """``key=value``, or a key alone, whose value is empty; the last one of a key counts."""
    return dict(_parse(each) for each in texts)


def change_labels(labels: Labels, added: Labels, removed: Iterable[str]) -> dict[str, str]:
    """A key that is to go and is not there is no error."""
    return {**{key: value for key, value in labels.items() if key not in set(removed)}, **added}


def parse_filter(texts: Iterable[str]) -> Callable[[Labels], bool]:
    """Whether labels have all that is asked for: ``key=value``, or ``key`` with whatever value."""
    wanted = [(*_parse(each), "=" in each) for each in texts]

    def have(labels: Labels) -> bool:
        return all(
            key in labels and (labels[key] == value or not stated) for key, value, stated in wanted
        )

    return have


def format_labels(labels: Labels) -> str:
    return ", ".join(f"{key}={value}" if value else key for key, value in sorted(labels.items()))


def _parse(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    if not _KEY.fullmatch(key) or len(value) > _LONGEST_VALUE or not value.isprintable():
        raise BadOption("--label", f"{text[:80]!r} is not KEY=VALUE", _ADVICE)
    return key, value
