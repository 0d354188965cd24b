"""A template's way into the pool, however its bytes were made: rename, refresh, record last.

What enters or leaves is noted in the workspace, with the proof by which it is known in the pool.
Nothing else there is ever taken for ours: Nova's own driver uses the same names.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from millpond.errors import DamagedRecord, NoSpace, PoolUnusable, TemplateInUse, VolumeExists
from millpond.model.callbacks import Progress, noop
from millpond.model.template import Template
from millpond.records import codec, journal
from millpond.records.journal import Step, Verb, Watch, as_step
from millpond.system import files
from millpond.templates.store import Leftover, TemplateStore

LOG = logging.getLogger(__name__)

SCHEMA = 1
"""Version of what is noted in a workspace."""

Users = Callable[[str], tuple[str, ...]]
"""Who uses the template of this name, in words: all who are known, whoever asks. A server's record
names its template before it is fetched, so that nobody is missing here."""


class Preparation(Protocol):
    """A template on its way into the pool."""

    @property
    def name(self) -> str:
        """Of its volume."""
        ...

    @property
    def replaces(self) -> bool:
        """Its file was in the pool before, and disks may be backed by it: it is never removed."""
        ...

    def scale_progress(self, length: int) -> Progress:
        """Told of so many bytes as they are carried to a host."""
        ...

    def make_record(self, path: Path, pool: str) -> Template:
        """Its record, once the bytes at ``path`` are in the pool."""
        ...


P = TypeVar("P", bound=Preparation)


class Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=Named)


@dataclass(frozen=True, slots=True)
class Removal:
    """A template on its way out of the pool."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingMove:
    """A template that enters the pool or leaves it, and the proof of its store."""

    template: Template
    proof: str
    leaves: bool = False
    schema: int = SCHEMA


MakeRoom = Callable[[int], None]
"""Called before so many bytes enter the pool; raises CacheFull where they do not fit."""


class Publication:
    def __init__(
        self, store: TemplateStore, users: Users, watch: Watch, make_room: MakeRoom = noop
    ) -> None:
        self._store = store
        self._users = users
        self._watch = watch
        self._make_room = make_room

    def verb(self, making: Sequence[Step[P]]) -> Verb[P]:
        first, *others = making
        return Verb(
            "prepare",
            (replace(first, undo=self._undo), *others, *self._entering()),
            finished=noop,
            undone=noop,
        )

    def filling(self, making: Sequence[Step[P]]) -> Verb[P]:
        """Of a template that is used already: nothing of it is ever undone."""
        steps = (*making, *self._entering())
        return Verb("fill", steps, finished=noop, undone=noop, resumes=True)

    def _entering(self) -> Sequence[Step[P]]:
        return (
            Step("publish", self._publish),
            Step("refresh", as_step(lambda wanted: self._refresh(wanted.name))),
            Step("record", as_step(lambda wanted: self._record(wanted.name))),
        )

    def run(self, wanted: P, verb: Verb[P]) -> Template:
        """Make it and publish it; its lock is held. What is made is left in part()."""
        done = journal.run(verb, wanted, WorkspaceJournal(self._store), self._watch)
        template = self._store.find(done.name)
        assert template is not None  # _record wrote it, and the lock is held
        return template

    def part(self, wanted: Preparation) -> Path:
        """Where the bytes are made before they enter the pool."""
        return self._store.workspace(wanted.name) / "part"

    def will_replace(self, name: str) -> bool:
        """Whether a damaged template of this name is ours to replace; somebody else's file is
        reported and left alone (B31)."""
        if self._store.has_record(name):
            return self._store.has(name)
        if self._find_leftover(name) is Leftover.NOTHING and self._store.has(name):
            raise VolumeExists(self._store.pool.name, name)
        return False

    def remove(self, name: str) -> None:
        """Nothing uses the template: the caller has asked, and holds its lock. Where nothing can
        be written down it is removed nonetheless, because that makes space; killed then, the file
        may stay."""
        try:
            if template := self._store.find(name):
                self._note(template, self._store.proof(name), leaves=True)
            journal.run(self.removal(), Removal(name), WorkspaceJournal(self._store), self._watch)
        except NoSpace:
            self._remove_all(name)
            self._store.discard_workspace(name)

    def removal(self) -> Verb[Removal]:
        store = self._store
        return Verb(
            "remove",
            (
                Step("record", as_step(lambda going: store.forget(going.name))),
                Step("file", as_step(lambda going: store.remove(going.name))),
                Step("refresh", as_step(lambda _going: store.pool.refresh())),
            ),
            finished=noop,
            undone=noop,
            resumes=True,
        )

    def resume(self, name: str) -> Template | None:
        """The template that comes of what an interrupted attempt left, if any does. A part of one
        that somebody waits for stays, and is filled by the next attempt. Its lock is held."""
        if not self._store.is_unfinished(name):
            return None
        with suppress(TemplateInUse):
            self.cleanup(name)
        return self._store.find(name)

    def cleanup(self, name: str) -> None:
        """After a crash: what is proven to be ours and is whole becomes a template; what was on
        its way out is removed, and so is a part. What somebody uses is not: it becomes a template
        again, or stays a part. Whatever else is there of this name stays: only the workspace goes.
        The template's lock is held."""
        left = self._find_leftover(name)
        if left is Leftover.WHOLE and not self._was_leaving(name):
            self._finish(name)
        elif left is not Leftover.NOTHING:
            self._remove_unused(name)
        self._store.discard_workspace(name)
        LOG.info("cleared an interrupted operation on template %s", name)

    def _was_leaving(self, name: str) -> bool:
        move = self._read_move(name)
        begun = move and move.leaves and not self._store.has_record(name)
        return bool(begun) and not self._users(name)

    def _publish(self, wanted: P) -> P:
        part, store = self.part(wanted), self._store
        template = wanted.make_record(part, store.pool.name)
        over = Leftover.WHOLE if wanted.replaces else self._find_leftover(wanted.name)
        with store.lock_room():
            # A hard link takes no space in a local cache; of a remote one it is uploaded.
            space = files.own_space(part) if store.local else files.taken_space(part)
            self._make_room(space - store.space(wanted.name))  # it may replace one
            progress = wanted.scale_progress(part.stat().st_size)
            note = partial(self._note, template)
            store.enter(part, wanted.name, over, note, progress)
        return wanted

    def _undo(self, wanted: Preparation) -> None:
        """One that is used stays, with the workspace that proves it to be ours."""
        if not wanted.replaces and self._find_leftover(wanted.name) is not Leftover.NOTHING:
            self._remove_unused(wanted.name)

    def _remove_unused(self, name: str) -> None:
        if users := self._users(name):
            raise TemplateInUse(name, users)
        self._remove_all(name)

    def _remove_all(self, name: str) -> None:
        self._store.forget(name)
        self._store.remove(name)
        self._store.pool.refresh()

    def _finish(self, name: str) -> None:
        self._refresh(name)
        self._record(name)

    def _refresh(self, name: str) -> None:
        self._store.pool.refresh()
        if self._store.pool.find(name) is None:
            raise PoolUnusable(
                self._store.pool.name,
                f"libvirt does not see what lies in {self._store.cache} on this machine",
            )

    def _record(self, name: str) -> None:
        move = self._read_move(name)
        assert move is not None  # what is published was noted before
        self._store.put(move.template)

    def _find_leftover(self, name: str) -> Leftover:
        move = self._read_move(name)
        return self._store.find_leftover(name, move.proof) if move else Leftover.NOTHING

    def _note(self, template: Template, proof: str, *, leaves: bool = False) -> None:
        content = codec.encode(PendingMove(template=template, proof=proof, leaves=leaves))
        self._store.write(self._move_file(template.volume), content)

    def _read_move(self, name: str) -> PendingMove | None:
        """One that cannot be read proves nothing."""
        path = self._move_file(name)
        with suppress(FileNotFoundError, DamagedRecord):
            return codec.decode(path.read_bytes(), PendingMove, path, SCHEMA)
        return None

    def _move_file(self, name: str) -> Path:
        return self._store.incoming(name) / "passage.json"


class WorkspaceJournal:
    """The step of a template's preparation or removal, in its workspace."""

    def __init__(self, store: TemplateStore) -> None:
        self._store = store

    def enter(self, state: N, verb: str, step: str) -> N:
        path = self._store.workspace(state.name) / "journal.json"
        content = {"schema": SCHEMA, "verb": verb, "step": step}
        self._store.write(path, codec.encode(content))
        return state

    def close(self, state: N, remains: N | None) -> None:
        self._store.discard_workspace(state.name)
