"""Programs run with limits and without a shell."""

import subprocess
import sys
import time
from contextlib import closing

import pytest

from millpond.errors import ToolFailed
from millpond.model.sizes import MiB
from millpond.system.process import Filter, Handed, Limits, run
from tests.support.processes import children, name_of
from tests.support.waiting import wait_for


def test_words_are_words_and_no_shell_reads_them():
    assert run(["echo", "$(id)", ";", "*"]) == "$(id) ; *\n"


def test_a_program_that_fails_says_its_last_line():
    with pytest.raises(ToolFailed, match=r"ls failed: .*No such file"):
        run(["ls", "/no/such/place"])


def test_a_program_that_hangs_is_stopped():
    with pytest.raises(ToolFailed, match="stopped after 1 s"):
        run(["sleep", "60"], Limits(seconds=1))


def test_a_program_that_wants_too_much_memory_fails():
    words = ["python3", "-c", "x = bytearray(400 * 1024 * 1024)"]
    with pytest.raises(ToolFailed, match="MemoryError"):
        run(words, Limits(memory=200 * MiB))


def test_a_program_that_computes_for_ever_is_killed():
    with pytest.raises(ToolFailed, match="killed by signal"):
        run(["sh", "-c", "while :; do :; done"], Limits(cpu_seconds=1))


def test_a_missing_program_is_a_clear_error():
    with pytest.raises(ToolFailed, match="no-such-tool"):
        run(["no-such-tool"])


def test_a_program_ends_with_whoever_started_it():
    """Also by SIGKILL: else it would go on, with locks on what it has open."""
    code = "from millpond.system.process import run; run(['sleep', '1000'])"
    starter = subprocess.Popen([sys.executable, "-c", code])
    program = wait_for(lambda: children(starter.pid), 30)[0]
    wait_for(lambda: name_of(program) == "sleep", 30)
    starter.kill()
    starter.wait()
    wait_for(lambda: name_of(program) is None, 30)


def test_what_a_program_prints_is_told_when_it_prints_it():
    """A bar's lines end in a carriage return."""
    told = []
    began = time.monotonic()
    run(
        ["sh", "-c", r"printf ' (1.00/100%%)\r (2.00/100%%)\r'; sleep 1; printf 'done\n'"],
        watch=lambda line: told.append((line, time.monotonic() - began)),
    )
    assert [line for line, _ in told] == ["(1.00/100%)", "(2.00/100%)", "done"]
    assert told[0][1] < 1 <= told[-1][1]


@pytest.mark.parametrize(
    ("program", "fed"),
    [
        ("exec sleep 60", bytes(MiB)),  # takes no more than a pipe does
        ("exec sleep 60", b"x"),  # makes nothing
        ("exec sleep 60 >&-", b""),  # does not end
    ],
)
def test_a_filter_that_hangs_is_stopped(program, fed):
    filter = Filter(["sh", "-c", program], Limits(seconds=1), Handed())
    began = time.monotonic()
    with closing(filter), pytest.raises(ToolFailed, match="stopped after 1 s without a byte"):
        b"".join((*filter.feed(fed), *filter.finish()))
    assert time.monotonic() - began < 30


def test_a_filter_that_goes_on_is_waited_for():
    """However long all of it takes."""
    program = "import time\nfor each in range(6): time.sleep(0.5); print(each, flush=True)"
    words = ["python3", "-I", "-S", "-c", program]
    with closing(Filter(words, Limits(seconds=2), Handed())) as filter:
        assert b"".join((*filter.feed(b"x"), *filter.finish())).split() == b"0 1 2 3 4 5".split()
