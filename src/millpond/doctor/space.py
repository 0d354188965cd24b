"""Free space on the file systems that Millpond writes to."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from millpond.doctor.finding import Finding, ok, problem, warning
from millpond.hosts.host import Host
from millpond.libvirt.pool import PoolType
from millpond.libvirt.pools import overview
from millpond.model.sizes import GiB, MiB, format_size
from millpond.system import files

# Below one of these the next template or copy may not fit.
_LITTLE = 1 * GiB
_LITTLE_SHARE = 0.1
# Below this not even the records and the consoles' logs are safe.
_NONE = 100 * MiB

_BLOCK = 512  # st_blocks counts in these, whatever the file system's own are (stat(2))


def look(host: Host) -> Iterator[Finding]:
    is_seen = host.seems_local
    pools = {each.name: Path(each.path) for each in host.pool_plan.directories() if is_seen}
    if not is_seen:
        yield from _of_pools(host)
    state = host.shared.settings.state_path
    systems: dict[int, dict[str, Path]] = {}
    for kept, path in {"the state directory": state, **pools}.items():
        systems.setdefault(_device(path), {})[kept] = path
    for device, places in systems.items():
        usage = shutil.disk_usage(files.nearest_existing(next(iter(places.values()))))
        takers = {"images": state / "images", **pools}
        here = {kept: path for kept, path in takers.items() if _device(path) == device}
        do = partial(_advice, here)
        yield _judge(usage.free, usage.total, ", ".join(places), do)


def _of_pools(host: Host) -> Iterator[Finding]:
    """By libvirt's word."""
    for each in overview(host.libvirtd, host.pool_plan):
        if each.usage and each.type == PoolType.DIR:
            free, total = each.usage.available, each.usage.capacity
            yield _judge(free, total, each.name, lambda: "free some space on that host")


def _judge(free: int, total: int, places: str, do: Callable[[], str]) -> Finding:
    share = free / total if total else 0.0
    what = f"{format_size(free)} of {format_size(total)} ({share:.0%}) free for {places}"
    if free >= _LITTLE and share >= _LITTLE_SHARE:
        return ok(what)
    return problem(what, do()) if free < _NONE else warning(what, do())


def _advice(places: Mapping[str, Path]) -> str:
    return f"free some space there; it is taken by {_sizes(places)}, and by what is not ours"


def _device(path: Path) -> int:
    return files.nearest_existing(path).stat().st_dev


def _sizes(places: Mapping[str, Path]) -> str:
    """A file with two names, such as an image's that is a template too, counts once."""
    seen: set[int] = set()
    return ", ".join(f"{kept}: {format_size(_space(path, seen))}" for kept, path in places.items())


def _space(directory: Path, seen: set[int]) -> int:
    found = [each.lstat() for each in directory.rglob("*")]
    new = {each.st_ino: each.st_blocks * _BLOCK for each in found if each.st_ino not in seen}
    seen.update(new)
    return sum(new.values())
