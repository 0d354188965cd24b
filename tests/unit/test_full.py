"""The parts of make test-full, and the page that they write together."""

import os

from tests import full
from tests.full import PARTS, merge, read

REPORT = """\
=================================== results ====================================
| tests | passed | failed | skipped | seconds |
|---|---|---|---|---|
| tests/ceph/test_kill.py | 10 | 0 | 1 | 80 |
| tests/ceph/test_hosts.py | 1 | 1 | 0 | 9 |
"""


def result(part="ceph", text=REPORT, code=1, minutes=2.0):
    return read(part, text.splitlines(), code, minutes)


def test_the_counts_of_a_part_are_the_sums_of_its_files():
    found = result()
    assert (found.passed, found.failed, found.skipped) == (11, 1, 1)


def test_a_part_that_ends_badly_has_failed_whatever_it_printed():
    assert result(text="", code=0).failed == 0
    assert result(text="", code=3).failed == 1
    assert result(text=REPORT.replace("| 1 | 1 |", "| 1 | 0 |"), code=2).failed == 1


def test_parts_of_different_sessions_are_merged_into_one_page(tmp_path):
    page = tmp_path / "2026-11-16.md"
    merge(page, result("unit", "| tests/unit/test_xml.py | 5 | 0 | 0 | 1 |", 0))
    merge(page, result())
    again = REPORT.replace("| 1 | 1 | 0 | 9 |", "| 2 | 0 | 0 | 8 |")
    merge(page, result(text=again, code=0, minutes=3))
    text = page.read_text()
    assert "| unit | 5 | 0 | 0 | 2 |" in text
    assert "| ceph | 12 | 0 | 1 | 3 |" in text
    assert "| tests/ceph/test_hosts.py | 2 | 0 | 0 | 8 |" in text
    assert text.count("tests/ceph/test_hosts.py") == text.count("| ceph |") == 1
    assert text.index("| unit |") < text.index("| ceph |")


def test_the_kills_of_chaos_are_noted():
    line = "seed ab12: 812 kills in 500 turns and 600 s (1.4 per second), 0 violations"
    assert result("chaos", line, 0).note == line


def test_every_test_is_in_some_part():
    """What is in tests/real and in no list is in real-2."""
    named = {word.partition("/test_")[0] for words in PARTS.values() for word in words}
    rungs = {f"tests/{each}" for each in os.listdir(full._REPOSITORY / "tests")}
    tested = {each for each in rungs if any(name_of(each))}
    assert tested - named <= {"tests/chaos"}  # a program: python -m tests.chaos
    assert all(os.path.exists(full._REPOSITORY / each) for each in named_files())


def named_files():
    """By which a part is what another one ignores."""
    return (*full._HOSTS, *full._MOVES, *full._TABLE, *full._CLOUD, *full._LVM_2)


def name_of(rung):
    place = full._REPOSITORY / rung
    return [each for each in place.glob("test_*.py")] if place.is_dir() else []
