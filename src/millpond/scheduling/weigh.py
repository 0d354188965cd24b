"""Which of the hosts that fit is best: pure, and the same for the same facts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Multipliers:
    """How much each weigher counts; 0 switches it off, less turns it round."""

    native: float = 10.0
    """Conversion costs minutes, so nothing else outweighs it by default."""
    cached: float = 3.0
    disk: float = 1.0
    memory: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWeights:
    """What a host is weighed by."""

    native: bool
    """The image's format is used as it is."""
    cached: bool
    """The template is there already."""
    disk: int
    """GiB that are free where its disks would be."""
    memory: int
    """MiB that are free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    total: float
    parts: Mapping[str, float]
    """By the weigher's name."""


_WEIGHERS: Mapping[str, Callable[[HostWeights], float]] = {
    "native": lambda host: host.native,
    "cached": lambda host: host.cached,
    "disk": lambda host: host.disk,
    "memory": lambda host: host.memory,
}


def weigh(hosts: Mapping[str, HostWeights], multipliers: Multipliers) -> dict[str, Score]:
    """Best first; of equals the first by name. Each weigher has one host at 0 and one at 1, as
    Nova's have, unless all are the same: then it does not count."""
    columns = {
        name: _normalize([value(each) for each in hosts.values()], multiplier)
        for name, value in _WEIGHERS.items()
        if (multiplier := getattr(multipliers, name))
    }
    scores = {
        host: Score(total=sum(row), parts=dict(zip(columns, row, strict=True)))
        for host, row in zip(hosts, _rows(list(columns.values()), len(hosts)), strict=True)
    }
    return dict(sorted(scores.items(), key=lambda each: (-round(each[1].total, 9), each[0])))


def _rows(columns: list[list[float]], count: int) -> list[tuple[float, ...]]:
    return list(zip(*columns, strict=True)) if columns else [()] * count


def _normalize(values: list[float], multiplier: float) -> list[float]:
    low, high = min(values, default=0), max(values, default=0)
    if low == high:
        return [0.0] * len(values)
    return [multiplier * (each - low) / (high - low) for each in values]
