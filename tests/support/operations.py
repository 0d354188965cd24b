"""The table of operations and backends: what passes, and why the rest is refused.
docs/operations.md is written from it (tools/operations), and tests walk every cell."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from millpond.model.callbacks import noop
from tests.support.guests import MicroGuest
from tests.support.millpond import Millpond, converted

PASSES = "passes"
NOT_WALKED = "not walked"
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


UNPROVEN = (Column.LVM,)
"""Its tests (tests/lvm) have not been run as a whole: the page claims nothing of it until they
have."""


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
        alone = (Column.LVM, Column.RBD, Column.LINKED)  # one host has them in the tests
        return NOT_WALKED if self.moves and column in alone else self.refused.get(column, PASSES)

    @property
    def expected(self) -> str:
        return self.state or ("running" if self.runs else "stopped")


_NO_UPLOAD = {Column.LINKED: NOT_WALKED}
"""Of such a template the image is Glance's, and the tests' Glance takes none."""
_NO_REVERT = {Column.RBD: "its root disk lies in Ceph"}

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
    "snapshot": Operation(words=("server snapshot web kept",), refused=_NO_UPLOAD),
    "snapshot of one that runs": Operation(
        words=("server snapshot web kept",), runs=True, refused=_NO_UPLOAD
    ),
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
    "migrate --live": Operation(
        words=("server migrate web --host birch --live",),
        runs=True,
        moves=True,
        refused={Column.PLOOP: "QEMU migrates no guest that has a ploop disk"},
    ),
    "evacuate": Operation(
        words=("server evacuate web --from alder --fenced --host birch",),
        runs=True,
        moves=True,
        dead=True,
    ),
}


def page() -> Iterator[str]:
    """docs/operations.md, line by line."""
    yield "# Operations and backends"
    yield ""
    yield "Every operation on every kind of root disk: it passes, or is refused with the reason"
    yield "below the table before anything is changed. Tests walk the cells"
    yield "(`test_operations_table.py` in `tests/real`, `tests/ceph` and `tests/lvm`);"
    yield "of one that says *not walked* nothing is claimed."
    yield "`tools/operations` writes this page."
    yield ""
    yield f"| operation | {' | '.join(Column)} |"
    yield f"|---|{'---|' * len(Column)}"
    notes: list[str] = []
    for name, operation in OPERATIONS.items():
        cells = [
            NOT_WALKED if each in UNPROVEN else _mark(operation.cell(each), notes)
            for each in Column
        ]
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""
    for number, reason in enumerate(notes, 1):
        yield f"{number}. Refused: {reason}."


def _mark(cell: str, notes: list[str]) -> str:
    if cell in (PASSES, NOT_WALKED):
        return cell
    if cell not in notes:
        notes.append(cell)
    return f"refused ({notes.index(cell) + 1})"


def names(column: Column, *, moves: bool) -> list[str]:
    """Of operations that are walked there."""
    return [
        name
        for name, operation in OPERATIONS.items()
        if operation.moves is moves and operation.cell(column) != NOT_WALKED
    ]


def add_image(millpond: Millpond, guest: MicroGuest, column: Column, directory: Path) -> None:
    path = converted(guest, "qcow2", directory) if column is Column.QCOW2 else guest.path
    millpond.ok("image", "add", path, "--name", "guest")


def create(millpond: Millpond, column: Column, operation: Operation, *options: str) -> None:
    """With the root disk, or the device, that the column is about."""
    own = ("--firmware", "uefi") if column is Column.UEFI else ()
    usual = ("--image", "guest", "--memory", "128M", "--network", "none")
    starts = () if operation.runs else ("--no-start",)
    millpond.ok("server", "create", NAME, *usual, *own, *starts, *options)


def walk(
    millpond: Millpond, column: Column, operation: Operation, die: Callable[[], None] = noop
) -> None:
    """What the cell says, of the server that create() has made. ``die``: its host does, if the
    operation needs that."""
    file = str(millpond.directory / "exported.tar")
    commands = [each.format(file=file).split() for each in operation.words]
    shown = _show(millpond)
    if operation.dead:
        die()
    if (reason := operation.cell(column)) != PASSES:
        _refused(millpond, commands, reason)
        assert operation.dead or _show(millpond) == shown
        return
    for words in commands:
        millpond.ok(*words)
    found = _show(millpond, operation.name)
    assert (found["state"] if found else "gone") == operation.expected
    if found and operation.expected == "stopped":
        millpond.ok("server", "start", operation.name)
    if found:
        millpond.ok("server", "delete", operation.name, "--yes")


def _refused(millpond: Millpond, commands: Sequence[Sequence[str]], reason: str) -> None:
    """The first of them."""
    status, message = millpond.fails(*commands[0])
    assert reason in " ".join(message.split()), message
    assert status in (2, 4, 5, 6)


def _show(millpond: Millpond, name: str = NAME) -> dict[str, Any] | None:
    """None if it is gone."""
    done = millpond.run("server", "show", name, "--json")
    return json.loads(done.stdout) if done.returncode == 0 else None
