"""Turns, one after the other: some operations at once, most of them killed; every list asked; a
recovery, which may be killed, too; and a look at everything."""

import contextlib
import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import libvirt

from tests.chaos import victim
from tests.chaos.inspection import Inspection, Violated, lists, problems, require, shape
from tests.chaos.model import Change, ImageModel, Model, ServerModel
from tests.chaos.operations import Operations
from tests.chaos.victim import Ending, Habits, Outcome
from tests.chaos.world import FORMATS, World

_AT_ONCE = 4
"""Operations; then, how often something happens in a turn."""
_FULL = 0.12
_RECOVERY_KILLED = 0.25
_DELETED_INSTEAD = 0.25
_RECOVERED_WHILE_FULL = 0.5
_MEND = ("doctor", "--mend", "--json")
_SECTOR = 512
_FEW = 4
"""Servers."""


@dataclass(slots=True)
class Campaign:
    """One world's history."""

    world: World
    connection: libvirt.virConnect
    seed: str
    model: Model = field(default_factory=Model)
    habits: Habits = field(default_factory=Habits)
    history: list[str] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)
    """By the kind of operation."""
    _servers: list[dict[str, Any]] = field(default_factory=list)
    """As they were listed last."""
    _deleted: set[str] = field(default_factory=set)
    """Servers that were deleted, or nearly so, to recover from something else."""
    _operations: Operations = field(init=False)
    _inspection: Inspection = field(init=False)

    def __post_init__(self) -> None:
        for format in FORMATS:
            content = self.world.files[format][0].content
            self.model.images[format] = ImageModel(name=format, content=content)
        self._operations = Operations(self.world, self.model)
        self._inspection = Inspection(self.world, self.connection)

    def turn(self, number: int) -> None:
        """Every turn has a chance of its own: one that went otherwise does not change the next
        ones' choices."""
        chance = random.Random(f"{self.seed}:{number}")
        self._write_pattern(chance)
        self.history.append(f"turn {number}")
        with self._perhaps_full(chance) as full:
            changes = self._choose(chance, full=full)
            outcomes = self._run(changes, chance)
            self._refuse_surprises(outcomes, full=full)
            lists(self.world)
            if full and chance.random() < _RECOVERED_WHILE_FULL:
                self._recover_once(changes, chance, Ending())
        self._recover(changes, chance)
        found = lists(self.world)
        self._follow(changes, outcomes, found)
        self._inspection.inspect(self.model, found)
        self._servers = found["server"]

    def _choose(self, chance: random.Random, *, full: bool) -> list[Change]:
        """What can be done at once. A guest that cannot write would be paused, and that is not
        what we look for."""
        changes: list[Change] = []
        for _ in range(chance.randint(1, _AT_ONCE)):
            change = self._operations.chosen(chance)
            starts = any(each and each.on for each in change.servers.values())
            if not (starts and full) and not any(map(change.conflicts, changes)):
                changes.append(change)
        return changes

    @contextlib.contextmanager
    def _perhaps_full(self, chance: random.Random) -> Iterator[bool]:
        share, leaving = chance.random(), chance.choice((0, 0, 4096, 65536, 1 << 20))
        where = chance.choice((self.world.state, self.world.instances))
        full = share < _FULL and not any(each.on for each in self.model.servers.values())
        if full:
            self.history.append(f"  {where.name} is full but for {leaving} bytes")
        with self.world.full(where, leaving) if full else contextlib.nullcontext():
            yield full

    def _run(self, changes: list[Change], chance: random.Random) -> list[Outcome]:
        endings = [Ending.chosen(chance, free=self._spared(each)) for each in changes]
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            begun = [
                threads.submit(self._command, each.kind, each.words, ending)
                for each, ending in zip(changes, endings, strict=True)
            ]
        return [each.result() for each in begun]

    def _spared(self, change: Change) -> float:
        """How often an operation is left alone: where there are few servers, most are made."""
        lonely = change.kind == "create" and len(self.model.servers) < _FEW
        return 0.7 if lonely else 0.1

    def _command(self, kind: str, words: tuple[str, ...], ending: Ending) -> Outcome:
        try:
            config = self.world.millpond.config
            outcome = victim.run(config, kind, words, ending, self.habits)
        except subprocess.TimeoutExpired as error:
            raise Violated(f"{' '.join(words)} hangs: {error.stderr}") from error
        self.history.append(f"  {outcome}")
        if outcome.was_ended:
            self.kills[kind] += 1
        return outcome

    def _refuse_surprises(self, outcomes: list[Outcome], *, full: bool) -> None:
        for each in outcomes:
            if each.was_ended:
                continue
            self._refuse_traceback(each)
            require(each.code == 0 or full, f"it fails without a reason: {each}")

    def _refuse_traceback(self, outcome: Outcome) -> None:
        ignored = "Exception ignored in" in outcome.err  # a signal that came in a __del__
        if "Traceback" in outcome.err and not ignored:
            self.history.append(outcome.err)
            raise Violated(f"a traceback: {outcome}")

    def _recover(self, changes: list[Change], chance: random.Random) -> None:
        if chance.random() < _RECOVERY_KILLED:
            self._recover_once(changes, chance, Ending.chosen(chance, free=0))
            lists(self.world)
        elif chance.random() < _DELETED_INSTEAD:
            self._recover_once(changes, chance, Ending())
        done = self._command("doctor", _MEND, Ending())
        self._refuse_traceback(done)
        left = [*problems(done.out)]
        require(not left, f"doctor cannot repair: {'; '.join(left)} {done.err}")

    def _recover_once(self, changes: list[Change], chance: random.Random, ending: Ending) -> None:
        """By whichever way, and possibly not to its end."""
        created = [
            name for each in changes if each.kind in ("create", "delete") for name in each.servers
        ]
        if created and chance.random() < 0.5:
            name = chance.choice(created)
            done = self._command("delete again", ("server", "delete", name), ending)
            if done.code == 0 or done.was_ended:
                self._deleted.add(name)
        else:
            done = self._command("doctor", _MEND, ending)
        if not done.was_ended:
            self._refuse_traceback(done)

    def _follow(
        self, changes: list[Change], outcomes: list[Outcome], found: dict[str, Any]
    ) -> None:
        """The model becomes what there is, as far as that may be."""
        servers = {each["name"]: each for each in found["server"]}
        images = {each["name"] for each in found["image"]}
        for change, outcome in zip(changes, outcomes, strict=True):
            done = outcome.code == 0
            for name, after in change.servers.items():
                self._follow_server(name, after, servers.get(name), done=done)
            for name, image in change.images.items():
                self._follow_image(name, image, name in images, done=done)
        self._deleted.clear()

    def _follow_server(
        self, name: str, after: ServerModel | None, found: dict[str, Any] | None, *, done: bool
    ) -> None:
        before = self.model.servers.pop(name, None)
        allowed = [after] if done else [before, after]
        if name in self._deleted:
            allowed = [*allowed, None]
        for each in allowed:
            if (each.shape if each else None) == (shape(found) if found else None):
                if each and found:
                    domain = self.connection.lookupByUUIDString(found["id"])
                    self.model.servers[name] = replace(each, on=bool(domain.isActive()))
                return
        seen = shape(found) if found else "nothing"
        wanted = " or ".join(str(each.shape if each else "nothing") for each in allowed)
        raise Violated(f"server {name} has {seen} in place of {wanted}")

    def _follow_image(
        self, name: str, after: ImageModel | None, is_there: bool, *, done: bool
    ) -> None:
        before = self.model.images.pop(name, None)
        allowed = [after] if done else [before, after]
        fitting = [each for each in allowed if bool(each) == is_there]
        require(fitting, f"image {name} is {'there' if is_there else 'gone'}")
        if kept := fitting[0]:
            self.model.images[name] = kept

    def _write_pattern(self, chance: random.Random) -> None:
        """What somebody wrote to a disk must be there for as long as the disk is."""
        off = [each for _, each in sorted(self.model.servers.items()) if not each.on]
        if not off:
            return
        server = chance.choice(off)
        role = chance.choice(sorted(server.disks))
        content = bytearray(server.disks[role])
        at = _SECTOR * chance.randrange(4, len(content) // _SECTOR)
        byte = chance.randrange(1, 256)
        disk = next(
            disk
            for each in self._servers
            if each["name"] == server.name
            for disk in each["disks"]
            if disk["role"] == role
        )
        path = self.world.disks / disk["volume"]
        words = ["qemu-io", "-f", disk["format"], "-c", f"write -q -P {byte} {at} {_SECTOR}"]
        subprocess.run([*words, str(path)], check=True, capture_output=True)
        content[at : at + _SECTOR] = bytes([byte]) * _SECTOR
        self.model.servers[server.name] = server.with_disk(role, bytes(content))


def keep_evidence(campaign: Campaign, what: str, where: Path) -> None:
    """The history, and all of the state directory as it is."""
    where.mkdir(parents=True)
    text = "\n".join([f"seed {campaign.seed}", *campaign.history, "", f"VIOLATED: {what}", ""])
    (where / "history").write_text(text)
    words = ["cp", "-a", "--sparse=always"]
    world, logs = campaign.world, campaign.world.libvirtd.directory
    for each in {world.state, world.instances, logs / "etc", logs / "log"}:
        subprocess.run([*words, "--parents", str(each), str(where)], check=False)
