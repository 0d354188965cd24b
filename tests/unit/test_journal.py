"""Operations of several steps: undone by the living, finished or undone by the next."""

from contextlib import contextmanager
from dataclasses import replace

import pytest

from millpond.errors import HostProblem, MillpondError, UnknownOperation
from millpond.model.callbacks import noop
from millpond.records import journal
from millpond.records.journal import Step, StepMoment, recover, run


def Verb(name, steps, *, finished=lambda state: state, undone=noop, resumes=False):  # noqa: N802
    return journal.Verb(name, steps, finished=finished, undone=undone, resumes=resumes)


class Notes:
    """A journal in memory, which can be made to fail."""

    def __init__(self, **failures):
        """``failures``: by the step that cannot be entered."""
        self.entered, self.closed = [], []
        self.failures = failures

    def enter(self, state, verb, step):
        if step in self.failures:
            raise self.failures[step]
        self.entered.append((verb, step))
        return state

    def close(self, state, remains):
        self.closed.append(remains)


class World:
    """Steps that write down what they do and can be made to fail."""

    def __init__(self):
        self.done = []

    def step(self, name, *, fails=None, undo_fails=False):
        def do(state):
            self.done.append(name)
            if fails:
                raise fails
            return state + 1

        def undo(state):
            self.done.append(f"un{name}")
            if undo_fails:
                raise MillpondError

        return Step(name, do, undo)


def test_all_steps_are_taken_in_order_and_each_is_written_down_before():
    world, notes, seen = World(), Notes(), []
    verb = Verb("make", (world.step("a"), world.step("b")))

    def watch(verb, step, moment):
        seen.append((step, moment, len(notes.entered), len(world.done)))

    assert run(verb, 0, notes, watch) == 2
    assert world.done == ["a", "b"]
    assert seen == [
        ("a", StepMoment.BEGIN, 1, 0),
        ("a", StepMoment.END, 1, 1),
        ("b", StepMoment.BEGIN, 2, 1),
        ("b", StepMoment.END, 2, 2),
    ]
    assert notes.closed == [2]


@pytest.mark.parametrize("failure", [MillpondError(), KeyboardInterrupt(), RuntimeError()])
def test_a_failed_step_undoes_itself_and_all_before_it(failure):
    world, notes = World(), Notes()
    verb = Verb("make", (world.step("a"), world.step("b", fails=failure), world.step("c")))
    with pytest.raises(type(failure)):
        run(verb, 0, notes)
    assert world.done == ["a", "b", "unb", "una"]
    assert notes.closed == [None]


def test_what_cannot_be_undone_stays_written_down_with_what_came_before_it():
    world, notes = World(), Notes()
    steps = (world.step("a"), world.step("b", fails=MillpondError(), undo_fails=True))
    with pytest.raises(MillpondError):
        run(Verb("make", steps), 0, notes)
    assert world.done == ["a", "b", "unb"]  # "a" may be what "b" still uses
    assert notes.closed == []


def test_a_verb_that_resumes_is_given_up_while_all_of_it_can_be_undone():
    world, notes = World(), Notes()
    verb = Verb("drop", (world.step("a"), world.step("b", fails=MillpondError())), resumes=True)
    with pytest.raises(MillpondError):
        run(verb, 0, notes)
    assert world.done == ["a", "b", "unb", "una"]
    assert notes.closed == [None]


def test_a_verb_that_resumes_is_not_undone_beyond_that():
    world, notes = World(), Notes()
    final = Step("a", world.step("a").do)
    verb = Verb("drop", (final, world.step("b", fails=MillpondError())), resumes=True)
    with pytest.raises(MillpondError):
        run(verb, 0, notes)
    assert world.done == ["a", "b"]
    assert (notes.entered[-1], notes.closed) == (("drop", "b"), [])


def test_recovery_undoes_from_the_step_that_was_written_down():
    world, notes = World(), Notes()
    verb = Verb("make", (world.step("a"), world.step("b"), world.step("c")))
    assert recover(verb, "b", 0, notes) is None
    assert world.done == ["unb", "una"]
    assert notes.closed == [None]


def test_recovery_goes_on_from_the_step_that_was_written_down():
    world, notes = World(), Notes()
    verb = Verb("drop", (world.step("a"), world.step("b"), world.step("c")), resumes=True)
    assert recover(verb, "b", 0, notes) == 2
    assert world.done == ["b", "c"]
    assert notes.closed == [2]


def test_recovery_that_cannot_undo_says_so_and_forgets_nothing():
    world, notes = World(), Notes()
    verb = Verb("make", (world.step("a", undo_fails=True),))
    with pytest.raises(HostProblem, match="could be undone"):
        recover(verb, "a", 0, notes)
    assert notes.closed == []


def test_a_verb_says_what_there_is_afterwards():
    world, notes = World(), Notes()
    steps = (world.step("a"),)
    run(Verb("make", steps, finished=lambda state: state * 10), 0, notes)
    failing = (world.step("a", fails=MillpondError()),)
    with pytest.raises(MillpondError):
        run(Verb("add", failing, undone=lambda state: "as before"), 0, notes)
    assert notes.closed == [10, "as before"]


def test_a_step_that_cannot_be_written_down_undoes_those_before_it():
    world, notes = World(), Notes(b=MillpondError())
    with pytest.raises(MillpondError):
        run(Verb("make", (world.step("a"), world.step("b"))), 0, notes)
    assert world.done == ["a", "una"]
    assert notes.closed == [None]


def test_a_step_that_nobody_knows_is_said():
    with pytest.raises(UnknownOperation, match="'make' with a step 'z'"):
        recover(Verb("make", (World().step("a"),)), "z", 0, Notes())


def test_an_undo_that_the_system_refuses_is_one_that_failed():
    def refused(_state):
        raise OSError("no")

    world, notes = World(), Notes()
    steps = (world.step("a"), Step("b", world.step("b", fails=MillpondError()).do, refused))
    with pytest.raises(MillpondError):
        run(Verb("make", steps), 0, notes)
    assert world.done == ["a", "b"]
    assert notes.closed == []


INTERRUPTIONS = [MillpondError(), OSError(), KeyboardInterrupt(), SystemExit(143)]


@pytest.mark.parametrize("failure", INTERRUPTIONS)
@pytest.mark.parametrize("where", ["in the step", "in the journal", "in the journal's end"])
def test_what_is_resumed_is_never_rolled_back(failure, where):
    """All of it could be undone, and a living process would."""

    class Closing(Notes):
        def close(self, state, remains):
            raise failure

    world = World()
    notes = {
        "in the step": Notes(),
        "in the journal": Notes(b=failure),
        "in the journal's end": Closing(),
    }[where]
    step = world.step("b", fails=failure if where == "in the step" else None)
    with pytest.raises(type(failure)):
        recover(Verb("add", (world.step("a"), step), resumes=True), "b", 0, notes)
    assert not {"una", "unb"} & set(world.done)
    assert notes.closed == []


@pytest.mark.parametrize("failure", INTERRUPTIONS[:2])
@pytest.mark.parametrize("resumes", [True, False])
def test_what_could_not_write_its_first_step_changes_nothing(failure, resumes):
    world, notes = World(), Notes(a=failure)
    with pytest.raises(type(failure)):
        run(Verb("make", (world.step("a"),), resumes=resumes), 0, notes)
    assert (world.done, notes.entered, notes.closed) == ([], [], [])


def test_interrupted_while_it_writes_its_first_step_it_is_given_up():
    """It may be written already."""
    world, notes = World(), Notes(a=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(Verb("make", (world.step("a"),)), 0, notes)
    assert (world.done, notes.closed) == (["una"], [None])


def test_what_cannot_go_back_is_left_as_it_is_when_its_first_step_is_interrupted():
    """Its journal may still be that of an older operation."""
    world, notes = World(), Notes(a=KeyboardInterrupt())
    verb = Verb("drop", (Step("a", world.step("a").do),), resumes=True)
    with pytest.raises(KeyboardInterrupt):
        run(verb, 0, notes)
    assert (world.done, notes.closed) == ([], [])


@pytest.mark.parametrize("failure", [MillpondError, KeyboardInterrupt])
def test_half_undone_it_is_resumed_from_the_first_step_that_was_undone(failure):
    def interrupted(_state):
        raise failure

    world, notes = World(), Notes()
    steps = (
        Step("a", world.step("a").do, interrupted),
        world.step("b"),
        world.step("c", fails=OSError()),
    )
    verb = Verb("add", steps, resumes=True)
    with pytest.raises((OSError, failure)):
        run(verb, 0, notes)
    assert world.done == ["a", "b", "c", "unc", "unb"]
    assert (notes.entered[-1], notes.closed) == (("add", "a"), [])


def test_an_undo_that_cannot_be_written_down_is_not_begun():
    world = World()
    steps = (world.step("a"), world.step("b", fails=MillpondError()))

    class FullAfterwards(Notes):
        def enter(self, state, verb, step):
            if len(self.entered) == 2:
                raise MillpondError
            return super().enter(state, verb, step)

    notes = FullAfterwards()
    with pytest.raises(MillpondError):
        run(Verb("add", steps, resumes=True), 0, notes)
    assert world.done == ["a", "b", "unb"]
    assert (notes.entered[-1], notes.closed) == (("add", "b"), [])


def test_what_holds_the_beginning_is_let_go_when_the_first_step_is_written():
    held = []

    @contextmanager
    def beginning():
        held.append("held")
        yield
        held.append("let go")

    world, notes = World(), Notes()

    def watch(_verb, step, _moment):
        held.append(step)

    run(Verb("make", (world.step("a"), world.step("b"))), 0, notes, watch, beginning())
    assert held == ["held", "let go", "a", "a", "b", "b"]


def test_interrupted_while_it_writes_a_later_step_it_says_first_what_it_undoes():
    """Its journal may be at the step that was not begun, and whoever resumes would begin there."""
    world, notes = World(), Notes(c=KeyboardInterrupt())
    verb = Verb("add", (world.step("a"), world.step("b"), world.step("c")), resumes=True)
    with pytest.raises(KeyboardInterrupt):
        run(verb, 0, notes)
    assert world.done == ["a", "b", "unb", "una"]
    assert [step for _, step in notes.entered] == ["a", "b", "b", "a"]
    assert notes.closed == [None]


def test_a_verb_is_undone_before_its_step_without_return_and_finished_from_it_on():
    for failing, done in (("b", ["a", "b", "unb", "una"]), ("c", ["a", "b", "c"])):
        world, notes = World(), Notes()
        steps = [
            world.step(each, fails=MillpondError() if each == failing else None) for each in "abc"
        ]
        verb = replace(Verb("move", tuple(steps)), no_return="c")
        with pytest.raises(MillpondError):
            run(verb, 0, notes)
        assert (world.done, bool(notes.closed)) == (done, failing == "b")
    world, notes = World(), Notes()
    verb = replace(Verb("move", tuple(map(world.step, "abcd"))), no_return="c")
    assert recover(verb, "d", 0, notes) == 1
    assert recover(verb, "c", 0, notes) == 2
    assert world.done == ["d", "c", "d"]
    assert recover(verb, "b", 0, notes) is None
    assert world.done == ["d", "c", "d", "unb", "una"]
    assert not verb.goes_forward(0, "a step of another version")


@pytest.mark.parametrize("error", [MillpondError(), OSError(), KeyboardInterrupt()])
def test_a_step_without_return_that_cannot_be_entered_leaves_the_record_to_decide(error):
    """It may be written down all the same."""
    world, notes = World(), Notes(c=error)
    verb = replace(Verb("move", tuple(map(world.step, "abcd"))), no_return="c")
    with pytest.raises(type(error)):
        run(verb, 0, notes)
    assert (world.done, notes.closed) == (["a", "b"], [])


@pytest.mark.parametrize("where", ["in the step", "in the undo", "behind the step without return"])
def test_interrupted_and_not_undone_it_says_what_is_left_and_who_repairs_it(where, caplog):
    """Ctrl-C, once or twice: there is no other message then."""

    def interrupted(_state):
        raise KeyboardInterrupt

    world = World()
    undo = interrupted if where == "in the undo" else world.step("a").undo
    verb = Verb("move", (Step("a", world.step("a").do, undo), Step("b", interrupted)))
    verb = replace(verb, no_return="b" if where == "behind the step without return" else "")
    notes = Notes()
    with pytest.raises(KeyboardInterrupt):
        run(verb, 0, notes)
    left = "move is interrupted at step b: 'millpond doctor --repair' finishes or undoes it"
    assert caplog.messages == ([] if where == "in the step" else [left])
    assert bool(notes.closed) is (where == "in the step")
