"""Operations of several steps: each step is written down before it is taken.

``undo`` serves the living process, the journal serves the next one: whoever finds an operation
that nobody works on any more (its lock can be taken) calls :func:`recover`.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from millpond.errors import MillpondError, NotUndone

LOG = logging.getLogger(__name__)

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Step(Generic[S]):
    """Both functions may be called again after they were interrupted anywhere."""

    name: str
    do: Callable[[S], S]
    undo: Callable[[S], None] | None = None


@dataclass(frozen=True, slots=True)
class Verb(Generic[S]):
    name: str
    steps: tuple[Step[S], ...]
    resumes: bool = False
    """Interrupted, it goes on from its step; otherwise what was done is undone."""

    @property
    def step_names(self) -> tuple[str, ...]:
        return tuple(step.name for step in self.steps)


class Journal(Protocol[S]):
    """Where the operation under way is kept. All three are durable when they return."""

    def enter(self, state: S, verb: str, step: str) -> S: ...

    def finish(self, state: S) -> S:
        """The operation has come to its end."""
        ...

    def forget(self, state: S) -> None:
        """The operation was undone: nothing is left of it."""
        ...


class Moment(StrEnum):
    BEGIN = "begin"
    END = "end"


Watch = Callable[[str, str, Moment], None]
"""Told each step of each verb as it begins and ends: for progress, for logs, and for tests that
kill the process there."""


def unwatched(_verb: str, _step: str, _moment: Moment) -> None:
    """Nobody watches."""


def run(verb: Verb[S], state: S, journal: Journal[S], watch: Watch = unwatched) -> S:
    """Take all steps. One that fails: what was done is undone, or (a verb that resumes) the
    operation stays written down for the next attempt."""
    return _run_from(verb, 0, state, journal, watch)


def recover(
    verb: Verb[S], step: str, state: S, journal: Journal[S], watch: Watch = unwatched
) -> S | None:
    """Finish or undo what was interrupted at ``step``; None if nothing is left of it.

    The caller holds the operation's lock.
    """
    index = verb.step_names.index(step)
    if verb.resumes:
        return _run_from(verb, index, state, journal, watch)
    if not _undo(verb, index, state):
        raise NotUndone(verb.name)
    journal.forget(state)
    return None


def _run_from(verb: Verb[S], first: int, state: S, journal: Journal[S], watch: Watch) -> S:
    for index, step in enumerate(verb.steps[first:], first):
        state = journal.enter(state, verb.name, step.name)
        try:
            watch(verb.name, step.name, Moment.BEGIN)
            state = step.do(state)
            watch(verb.name, step.name, Moment.END)
        except BaseException:
            if not verb.resumes and _undo(verb, index, state):
                journal.forget(state)
            raise
    return journal.finish(state)


def _undo(verb: Verb[S], last: int, state: S) -> bool:
    """Undo the steps up to ``last``, latest first; False if any of them could not be."""
    complete = True
    for step in reversed(verb.steps[: last + 1]):
        try:
            if step.undo:
                step.undo(state)
        except MillpondError as error:
            LOG.warning("%s: step %s could not be undone: %s", verb.name, step.name, error)
            complete = False
    return complete
