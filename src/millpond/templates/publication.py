"""A template's way into the pool, however its bytes were made: rename, refresh, record last."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from millpond.errors import PoolUnusable, VolumeExists
from millpond.model.template import Template
from millpond.records import codec, journal
from millpond.records.journal import Step, Verb, Watch, deed, nothing
from millpond.system import files
from millpond.system.files import Progress
from millpond.templates.store import TemplateStore

LOG = logging.getLogger(__name__)


class Preparation(Protocol):
    """A template on its way into the pool."""

    @property
    def name(self) -> str:
        """Of its volume."""
        ...

    @property
    def replaces(self) -> bool:
        """Its file lay in the pool before, and disks may stand on it: it is never taken away."""
        ...

    def carried(self, length: int) -> Progress:
        """Told of so many bytes as they are carried to a host."""
        ...

    def described(self, path: Path, pool: str) -> Template:
        """Its record, now that its bytes are at ``path``."""
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


MakeRoom = Callable[[int], None]
"""Called before so many bytes enter the pool; raises CacheFull where they do not fit."""


def unbounded(_needed: int) -> None:
    """There is always room."""


class Publication:
    def __init__(
        self, store: TemplateStore, watch: Watch, make_room: MakeRoom = unbounded
    ) -> None:
        self._store = store
        self._watch = watch
        self._make_room = make_room

    def verb(self, making: Sequence[Step[P]]) -> Verb[P]:
        return Verb(
            "prepare",
            (
                *making,
                Step("publish", self._publish, self._withdraw),
                Step("refresh", self._refresh),
                Step("record", self._record),
            ),
            finished=nothing,
            undone=nothing,
        )

    def run(self, wanted: P, making: Sequence[Step[P]]) -> Template:
        """Make it and bring it in; its lock is held. ``making`` leaves its bytes in part()."""
        done = journal.run(self.verb(making), wanted, WorkspaceJournal(self._store), self._watch)
        template = self._store.find(done.name)
        assert template is not None  # _record wrote it, and the lock is held
        return template

    def part(self, wanted: Preparation) -> Path:
        """Where the bytes are made before they enter the pool."""
        return self._store.workspace(wanted.name) / "part"

    def will_replace(self, name: str) -> bool:
        """Whether a damaged template of this name is ours to replace; somebody else's file is
        reported and left alone (B31)."""
        if not self._store.shelf.has(name):
            return False
        if not self._store.is_ours(name):
            raise VolumeExists(self._store.pool.name, name)
        return self._store.has_record(name)

    def drop(self, name: str) -> None:
        """Its workspace names it as ours until it is gone: killed in between, clear() goes on."""
        journal.run(self.removal(), Removal(name), WorkspaceJournal(self._store), self._watch)

    def removal(self) -> Verb[Removal]:
        store = self._store
        return Verb(
            "remove",
            (
                Step("record", deed(lambda going: store.forget(going.name))),
                Step("file", deed(lambda going: store.shelf.remove(going.name))),
                Step("refresh", deed(lambda _going: store.pool.refresh())),
            ),
            finished=nothing,
            undone=nothing,
            resumes=True,
        )

    def clear(self, name: str) -> None:
        """Remove what an interrupted preparation left: only what its own journal names."""
        if not self._store.has_record(name) and self._store.shelf.has(name):
            self.drop(name)
        self._store.discard_workspace(name)
        LOG.info("cleared away an interrupted preparation of template %s", name)

    def _publish(self, wanted: P) -> P:
        part, shelf = self.part(wanted), self._store.shelf
        with self._store.lock_room():
            before = shelf.space(wanted.name)  # of one that it replaces
            self._make_room(shelf.cost(part) - before)
            progress = wanted.carried(part.stat().st_size)
            shelf.enter(part, wanted.name, wanted.replaces, progress)
        return wanted

    def _withdraw(self, wanted: Preparation) -> None:
        if not wanted.replaces and self._store.shelf.has(wanted.name):
            self.drop(wanted.name)

    def _refresh(self, wanted: P) -> P:
        self._store.pool.refresh()
        if self._store.pool.find(wanted.name) is None:
            raise PoolUnusable(
                self._store.pool.name,
                f"libvirt does not see what lies in {self._store.cache} on this machine",
            )
        return wanted

    def _record(self, wanted: P) -> P:
        path = self._store.shelf.entered(self.part(wanted), wanted.name)
        self._store.put(wanted.described(path, self._store.pool.name))
        return wanted


class WorkspaceJournal:
    """The step of a template's preparation or removal, in its workspace."""

    def __init__(self, store: TemplateStore) -> None:
        self._store = store

    def enter(self, state: N, verb: str, step: str) -> N:
        path = self._store.workspace(state.name) / "journal.json"
        files.write_atomically(path, codec.encode({"schema": 1, "verb": verb, "step": step}))
        return state

    def close(self, state: N, remains: N | None) -> None:
        self._store.discard_workspace(state.name)
