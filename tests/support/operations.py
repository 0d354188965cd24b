"""The table of operations and backends: what passes, and why the rest is refused.
docs/operations.md is written from it (tools/operations), and tests walk every cell."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from millpond.model.callbacks import noop
from millpond.model.names import ServerId
from tests.support.guest_ticks import MovingGuest
from tests.support.guests import MicroGuest
from tests.support.millpond import Millpond, converted
from tests.support.multi_host import MultiHost

PASSES = "passes"
NAME = "web"


class Column(StrEnum):
    """What the root disk is, or what else the server has."""

    QCOW2 = "qcow2"
    RAW = "raw"
    PLOOP = "ploop"
    LVM = "LVM"
    RBD = "RBD"
    LINKED = "linked template"
    UEFI = "UEFI"
    DISKS = "ephemeral, swap, data disk"
    REMOTE = "remote host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Words of commands, the first of which is refused where the operation is."""

    words: tuple[str, ...]
    runs: bool = False
    """The server runs before."""
    state: str = ""
    """Afterwards; empty: as before."""
    name: str = NAME
    """Afterwards."""
    moves: bool = False
    """It needs another host."""
    dead: bool = False
    """Its host has lost its power, and the other one shares the pool of its disks."""
    refused: Mapping[Column, str] = field(default_factory=dict)
    """What the message says, where it does."""

    def cell(self, column: Column) -> str:
        return self.refused.get(column, PASSES)

    @property
    def expected(self) -> str:
        return self.state or ("running" if self.runs else "stopped")


LIVE = "migrate --live"
WITH_GLANCE = {("snapshot", Column.LINKED), ("snapshot of one that runs", Column.LINKED)}
"""Such an image is Glance's, and so is its snapshot: tests/services has a Glance that takes it."""
PAUSES = Path(__file__).with_name("pauses.json")
"""The longest that a guest of each column was paused by it, in seconds: pytest --regenerate."""
_BUSIER = 5
"""So much longer than the table says a pause may be on a machine that has more to do."""
_NO_REVERT = {Column.REMOTE: "libvirt cannot copy a qcow2 volume as it is"}
_OWN_GROUP = {
    Column.LVM: "disk is in pool nova-disks-pool-lvm of host 'alder', which host 'birch' was not "
    "proven to share"
}

OPERATIONS: Mapping[str, Operation] = {
    "create": Operation(words=(), runs=True),
    "start": Operation(words=("server start web",), state="running"),
    "stop": Operation(words=("server stop web --force",), runs=True, state="stopped"),
    "reboot, hard": Operation(words=("server reboot web --hard",), runs=True),
    "pause, unpause": Operation(words=("server pause web", "server unpause web"), runs=True),
    "rename": Operation(words=("server rename web other",), name="other"),
    "add and remove a data disk": Operation(
        words=("server disk add web --size 16M", "server disk remove web disk.data0 --yes"),
    ),
    "add a data disk while it runs": Operation(
        words=("server disk add web --size 16M",), runs=True
    ),
    "grow the root disk": Operation(words=("server resize web --disk 64M",)),
    "grow the root disk while it runs": Operation(
        words=("server resize web --disk 64M",),
        runs=True,
        refused={Column.PLOOP: "a ploop disk in pool nova-disks-pool is copied to become larger"},
    ),
    "resize vCPUs and memory": Operation(words=("server resize web --vcpus 2 --memory 160M",)),
    "resize, revert": Operation(
        words=("server resize web --disk 64M --revertable", "server resize web --revert"),
        refused=_NO_REVERT,
    ),
    "resize, confirm": Operation(
        words=("server resize web --disk 64M --revertable", "server resize web --confirm"),
        refused=_NO_REVERT,
    ),
    "rebuild": Operation(words=("server rebuild web --yes --force",), runs=True),
    "rescue, unrescue": Operation(
        words=("server rescue web --force", "server unrescue web --force"), runs=True
    ),
    "snapshot": Operation(words=("server snapshot web kept",)),
    "snapshot of one that runs": Operation(words=("server snapshot web kept",), runs=True),
    "clone": Operation(words=("server clone web copy --no-start",)),
    "export": Operation(words=("server export web {file}",)),
    "delete": Operation(words=("server delete web --yes",), runs=True, state="gone"),
    "migrate": Operation(
        words=("server migrate web --host birch",),
        moves=True,
    ),
    "migrate --stop": Operation(
        words=("server migrate web --host birch --stop --force",),
        runs=True,
        moves=True,
    ),
    LIVE: Operation(
        words=("server migrate web --host birch --live --json",),
        runs=True,
        moves=True,
        refused={Column.PLOOP: "QEMU migrates no guest that has a ploop disk"},
    ),
    "evacuate": Operation(
        words=("server evacuate web --from alder --fenced --host birch",),
        runs=True,
        moves=True,
        dead=True,
        refused={
            **_OWN_GROUP,
            Column.DISKS: "disk.eph0 is backed by a template that host 'alder' has formatted",
        },
    ),
}


def page() -> Iterator[str]:
    """docs/operations.md, line by line."""
    yield "# Operations and backends"
    yield ""
    yield "Every operation on every kind of root disk: it passes, or is refused with the reason"
    yield "below the table before anything is changed. From *linked template* on, the root disk is"
    yield "qcow2; *ephemeral, swap, data disk* has a config drive, too, and *remote host* is one"
    yield "that is reached by TCP, whose files cannot be opened here; servers move to another one."
    yield "Tests walk every cell (`test_operations_table.py` in `tests/real`, `tests/ceph`,"
    yield "`tests/lvm` and `tests/services`)."
    yield ""
    yield "Next to a live migration is the longest pause of the guest that was measured, with an"
    yield "emulated guest on a busy machine. The guest writes a number 18 times a second, and none"
    yield "is missing. `pytest --regenerate` keeps the pauses, and `tools/operations` writes this"
    yield "page."
    yield ""
    yield f"| operation | {' | '.join(Column)} |"
    yield f"|---|{'---|' * len(Column)}"
    notes: list[str] = []
    for name, operation in OPERATIONS.items():
        cells = [_mark(operation.cell(each), notes) for each in Column]
        if name == LIVE:
            cells = [_add_pause(*each) for each in zip(cells, Column, strict=True)]
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""
    for number, reason in enumerate(notes, 1):
        yield f"{number}. Refused: {reason}."


def _mark(cell: str, notes: list[str]) -> str:
    if cell == PASSES:
        return cell
    if cell not in notes:
        notes.append(cell)
    return f"refused ({notes.index(cell) + 1})"


def _add_pause(cell: str, column: Column) -> str:
    seconds = pauses().get(column)
    return f"{cell}, {seconds:.2f} s" if cell == PASSES and seconds else cell


def pauses() -> dict[str, float]:
    found: dict[str, float] = json.loads(PAUSES.read_text())
    return found


def keep_pause(column: Column, seconds: float) -> None:
    """If it is longer than any before."""
    kept = pauses()
    kept[column] = max(kept.get(column, 0), round(seconds, 3))
    PAUSES.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")


def names(column: Column, *, moves: bool) -> list[str]:
    """Of operations that are walked there."""
    return [name for name, operation in OPERATIONS.items() if operation.moves is moves]


def check_pause(column: Column, seconds: float) -> None:
    """That it is what the table says of it."""
    assert 0 < seconds <= _BUSIER * pauses()[column], (column, seconds)


_OWN = {
    Column.UEFI: ("--firmware", "uefi"),
    Column.DISKS: ("--ephemeral", "16M", "--swap", "8M", "--config-drive"),
}


def add_image(millpond: Millpond, guest: MicroGuest, column: Column, directory: Path) -> None:
    path = converted(guest, "qcow2", directory) if column is Column.QCOW2 else guest.path
    millpond.ok("image", "add", path, "--name", "guest")


def create(
    millpond: Millpond, column: Column, operation: Operation, *options: str, image: str = "guest"
) -> None:
    """With the root disk, or the device, that the column is about."""
    own = _OWN.get(column, ())
    usual = ("--image", image, "--memory", "128M", "--network", "none")
    starts = () if operation.runs else ("--no-start",)
    millpond.ok("server", "create", NAME, *usual, *own, *starts, *options)
    if column is Column.DISKS:
        millpond.ok("server", "disk", "add", NAME, "--size", "16M")


def walk(
    millpond: Millpond,
    column: Column,
    operation: Operation,
    die: Callable[[], None] = noop,
    look: Callable[[str], None] = noop,
) -> None:
    """What the cell says, of the server that create() has made. ``die``: its host does, if the
    operation needs that. ``look`` is given what the last command has printed."""
    file = str(millpond.directory / "exported.tar")
    commands = [each.format(file=file).split() for each in operation.words]
    shown = _show(millpond)
    if operation.dead:
        die()
    if (reason := operation.cell(column)) != PASSES:
        _refused(millpond, commands, reason)
        assert operation.dead or _show(millpond) == shown
        return
    printed = ""
    for words in commands:
        printed = millpond.ok(*words)
    look(printed)
    found = _show(millpond, operation.name)
    assert (found["state"] if found else "gone") == operation.expected
    if found and operation.expected == "stopped":
        millpond.ok("server", "start", operation.name)
    if found:
        millpond.ok("server", "delete", operation.name, "--yes")


@pytest.fixture
def move(pytestconfig: pytest.Config) -> Callable[..., None]:
    """walk_move(), which keeps the pauses if it is asked to."""
    return partial(walk_move, keep=pytestconfig.getoption("--regenerate"))


def walk_move(
    hosts: MultiHost,
    name: str,
    column: Column,
    logs: Sequence[str],
    *,
    keep: bool,
    image: str = "guest",
    options: Sequence[str] = (),
    die: Callable[[], None] | None = None,
) -> None:
    """From alder to birch. A guest that moves live writes all the time and loses nothing: the logs
    of these hosts have what it printed, if it boots by their firmware. ``keep`` its pause."""
    operation = OPERATIONS[name]
    create(hosts, column, operation, "--host", "alder", *options, image=image)
    if name != LIVE or operation.cell(column) != PASSES:
        walk(hosts, column, operation, die or hosts.hosts["alder"].lose_power)
        return
    guest = MovingGuest(hosts, ServerId(hosts.deployment().server(NAME).id))
    boots = column is not Column.UEFI  # test_uefi.py has a guest that does, and counts
    if boots:
        guest.wait_for_ticks("alder")

    def look(printed: str) -> None:
        if boots:
            guest.check_gapless(*logs)
        pause = json.loads(printed)["pause"]
        if keep:
            keep_pause(column, pause)
        check_pause(column, pause)

    walk(hosts, column, operation, look=look)


def _refused(millpond: Millpond, commands: Sequence[Sequence[str]], reason: str) -> None:
    """The first of them."""
    status, message = millpond.fails(*commands[0])
    assert reason in " ".join(message.split()), message
    assert status in (2, 4, 5, 6)


def _show(millpond: Millpond, name: str = NAME) -> dict[str, Any] | None:
    """None if it is gone."""
    done = millpond.run("server", "show", name, "--json")
    return json.loads(done.stdout) if done.returncode == 0 else None
