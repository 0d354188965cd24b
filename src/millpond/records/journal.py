"""Operations of several steps: each step is written down before it is taken.

``undo`` serves the living process, the journal serves the next one: whoever finds an operation
that nobody works on any more (its lock can be taken) calls :func:`recover`.
"""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass, replace
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from millpond.errors import HostProblem, MillpondError, Tool, UnknownOperation
from millpond.model.callbacks import noop

LOG = logging.getLogger(__name__)

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Step(Generic[S]):
    """Both functions may be called again after they were interrupted anywhere."""

    name: str
    do: Callable[[S], S]
    undo: Callable[[S], None] | None = None


def never(_state: object, _step: str) -> bool:
    """It is undone, wherever it was."""
    return False


@dataclass(frozen=True, slots=True)
class Verb(Generic[S]):
    name: str
    steps: tuple[Step[S], ...]
    _: KW_ONLY
    finished: Callable[[S], S | None]
    """What there is when all steps were taken; None: nothing any more."""
    undone: Callable[[S], S | None]
    """What there is again when they were undone."""
    resumes: bool = False
    """When its process died, the next one goes on from its step; otherwise it undoes them."""
    arrived: Callable[[S, str], bool] = never
    """Whether one that does not resume has come so far, at this step, that it is finished."""
    no_return: str = ""
    """Once this step is written down, it only rolls forward."""

    @property
    def step_names(self) -> tuple[str, ...]:
        return tuple(step.name for step in self.steps)

    def goes_forward(self, state: S, step: str) -> bool:
        """Whether who finds it interrupted at ``step`` finishes it."""
        return self.resumes or self.has_no_return(step) or self.arrived(state, step)

    def has_no_return(self, step: str) -> bool:
        """Whether this step, or one before it, is the one without return. One that another
        version has written down may be unknown."""
        names = self.step_names
        first = names.index(self.no_return) if self.no_return else len(names)
        return step in names[first:]


def as_step(act: Callable[[S], object]) -> Callable[[S], S]:
    """As what a step does: something that leaves the state as it is."""

    def do(state: S) -> S:
        act(state)
        return state

    return do


class Journal(Protocol[S]):
    """Where the operation under way is kept. Both are durable when they return."""

    def enter(self, state: S, verb: str, step: str) -> S: ...

    def close(self, state: S, remains: S | None) -> None:
        """No operation is under way any more, and this is what there is."""
        ...


class StepMoment(StrEnum):
    """Of a step, for whoever watches it."""

    BEGIN = "begin"
    END = "end"


Watch = Callable[[str, str, StepMoment], None]
"""Told each step of each verb as it begins and ends: for progress, for logs, and for tests that
kill the process there."""


@contextmanager
def watching(watch: Watch, verb: str, step: str) -> Iterator[None]:
    """The block is the step; one that fails has no end."""
    watch(verb, step, StepMoment.BEGIN)
    yield
    watch(verb, step, StepMoment.END)


_NO_LOCK = nullcontext()


def run(
    verb: Verb[S],
    state: S,
    journal: Journal[S],
    watch: Watch = noop,
    beginning: AbstractContextManager[object] = _NO_LOCK,
) -> S:
    """Take all steps. One that fails: what was done is undone; or, of a verb that resumes and
    has come beyond what can be undone, the operation stays written down for the next attempt.

    ``beginning`` is held while the first step is written down; when that cannot be, nothing is
    changed."""
    for index, step in enumerate(verb.steps):
        try:
            with beginning if index == 0 else nullcontext():
                state = journal.enter(state, verb.name, step.name)
        except (MillpondError, OSError):
            if index and not verb.has_no_return(step.name):  # it may be written down all the same
                _give_up(verb, index - 1, state, journal)
            raise
        except BaseException:  # an interruption may come when it is written already
            if not verb.has_no_return(step.name):
                _give_up(verb, max(index - 1, 0), state, journal, written=index)
            raise
        try:
            state = _take(verb, step, state, watch)
        except BaseException:
            _give_up(verb, index, state, journal)
            raise
    return _close(journal, state, verb.finished(state)) or state


def recover(
    verb: Verb[S], step: str, state: S, journal: Journal[S], watch: Watch = noop
) -> S | None:
    """Finish or undo what was interrupted at ``step``; None if nothing is left of it.

    The caller holds the operation's lock.
    """
    if step not in verb.step_names:
        raise UnknownOperation(verb.name, step)
    index = verb.step_names.index(step)
    if verb.goes_forward(state, step):
        return _resume(verb, index, state, journal, watch)
    if not _undo(verb, index, state):
        raise HostProblem(
            f"not everything that {verb.name!r} had begun could be undone",
            f"'{Tool.DOCTOR}' shows why; '{Tool.REPAIR}' tries again",
        )
    return _close(journal, state, verb.undone(state))


def _resume(verb: Verb[S], first: int, state: S, journal: Journal[S], watch: Watch) -> S | None:
    """Never rolled back: what the steps of a dead process made may be in use, or the only copy.
    When it fails, it stays written down where it is."""
    for step in verb.steps[first:]:
        state = _take(verb, step, journal.enter(state, verb.name, step.name), watch)
    return _close(journal, state, verb.finished(state))


def _take(verb: Verb[S], step: Step[S], state: S, watch: Watch) -> S:
    with watching(watch, verb.name, step.name):
        return step.do(state)


def _give_up(
    verb: Verb[S], reached: int, state: S, journal: Journal[S], *, written: int | None = None
) -> None:
    """``written``: the step that the journal may be at, if it is another one than ``reached``."""
    is_undone = False
    try:
        is_undone = _go_back(verb, reached, state, journal, written)
    finally:
        if not is_undone and not isinstance(sys.exception(), Exception):  # Ctrl-C says nothing
            step = verb.steps[reached].name
            told = "%s is interrupted at step %s: '%s' finishes or undoes it"
            LOG.warning(told, verb.name, step, Tool.REPAIR)


def _go_back(
    verb: Verb[S], reached: int, state: S, journal: Journal[S], written: int | None
) -> bool:
    """Whether nothing of it is under way any more."""
    if not _can_go_back(verb, reached):
        return False
    at = reached if written is None else written
    back = _journal_undo(verb, journal, at) if verb.resumes else verb
    if not _undo(back, reached, state):
        return False
    try:
        journal.close(state, verb.undone(state))
    except MillpondError as error:
        LOG.warning("%s was undone, but not written down: %s", verb.name, error)
    return True


def _can_go_back(verb: Verb[S], index: int) -> bool:
    """While we live, a verb that resumes is given up as long as all of it can be undone."""
    if verb.has_no_return(verb.steps[index].name):
        return False
    return not verb.resumes or all(step.undo for step in verb.steps[: index + 1])


def _close(journal: Journal[S], state: S, remains: S | None) -> S | None:
    journal.close(state, remains)
    return remains


def _journal_undo(verb: Verb[S], journal: Journal[S], at: int) -> Verb[S]:
    """The same verb, whose steps are written down again before they are undone, but for the one
    that the journal is at: who finds it half undone resumes from there."""

    def journal_step(step: Step[S]) -> Step[S]:
        def undo(state: S) -> None:
            journal.enter(state, verb.name, step.name)
            (step.undo or noop)(state)

        return replace(step, undo=undo)

    steps = (step if index == at else journal_step(step) for index, step in enumerate(verb.steps))
    return replace(verb, steps=tuple(steps))


def _undo(verb: Verb[S], last: int, state: S) -> bool:
    """Undo the steps up to ``last``, latest first; False if one of them could not be. Those before
    it stay: a disk is not removed under a server that could not be stopped."""
    for step in reversed(verb.steps[: last + 1]):
        try:
            if step.undo:
                step.undo(state)
        except (MillpondError, OSError) as error:
            LOG.warning("%s: step %s could not be undone: %s", verb.name, step.name, error)
            return False
    return True


@contextmanager
def undo_on_failure() -> Iterator[ExitStack]:
    """Run the registered callbacks, last one first, only if the block raises.

    with undo_on_failure() as undo:
        volume = pool.create(spec)
        undo.callback(pool.delete, volume.name)
        attach(volume)
    """
    with ExitStack() as undo:
        yield undo
        undo.pop_all()
