"""What the comparison of both drivers by Tempest makes of results."""

import json
import re

import pytest

from tests.tempest.answers import Answers
from tests.tempest.outcome import Status, read, regressions, unanswered
from tests.tempest.page import written
from tests.tempest.selection import LEFT_OUT, SHORT, WHOLE

TEST = "tempest.api.compute.servers.test_pond.PondTest.test_{}"

LINES = "\n".join(
    json.dumps(each)
    for each in (
        {
            "name": f"{TEST.format('fill')}[id-1,smoke]",
            "status": "passed",
            "seconds": 2.4,
            "text": "success",
        },
        {
            "name": f"{TEST.format('drain')}[id-2]",
            "status": "failed",
            "seconds": 3,
            "text": "Traceback (most recent call last):\nAssertionError: 0 | 1 are left\n\n",
        },
        {
            "name": "setUpClass (tempest.api.compute.servers.test_mill.MillTest)",
            "status": "skipped",
            "seconds": 0,
            "text": "no mill",
        },
    )
)


def results(**statuses):
    each = {"seconds": 1, "text": "because"}
    lines = (
        json.dumps({"name": f"{TEST.format(name)}[id-9]", "status": status, **each})
        for name, status in statuses.items()
    )
    return read("\n".join(lines))


def test_results_are_read_by_the_names_of_the_tests():
    found = read(LINES)
    assert found[TEST.format("fill")].status is Status.PASSED
    assert found[TEST.format("fill")].seconds == 2.4
    assert found[TEST.format("drain")].status is Status.FAILED
    assert found[TEST.format("drain")].reason == "AssertionError: 0 | 1 are left"


def test_a_class_that_is_skipped_is_one_test_with_its_reason():
    (skipped,) = (each for each in read(LINES).values() if each.status is Status.SKIPPED)
    assert skipped.reason == "no mill"


@pytest.mark.parametrize("status", ["failed", "skipped"])
def test_what_passes_on_the_stock_driver_has_to_pass_on_ours(status):
    assert regressions(results(fill=status), results(fill="passed"), []) == [TEST.format("fill")]


def test_what_has_yet_to_run_on_ours_is_missing_and_no_regression():
    listed = [f"{TEST.format('fill')}[id-1]"]
    assert regressions(results(), results(fill="passed"), listed) == []
    assert unanswered(listed, results()) == [TEST.format("fill")]


def test_what_could_not_be_set_up_on_ours_did_not_pass():
    line = {"name": f"setUpClass ({TEST.rpartition('.')[0]})", "status": "failed", "seconds": 0}
    ours = read(json.dumps({**line, "text": "no pond"}))
    listed = [f"{TEST.format('fill')}[id-1]"]
    assert regressions(ours, results(fill="passed"), listed) == [TEST.format("fill")]


def test_what_fails_on_both_or_on_the_stock_driver_alone_is_no_regression():
    assert (
        regressions(
            results(fill="failed", drain="passed"), results(fill="failed", drain="failed"), []
        )
        == []
    )


def test_what_did_not_run_is_named_but_for_classes_that_were_skipped():
    mill = "tempest.api.compute.servers.test_mill.MillTest.test_grind[id-3]"
    listed = (f"{TEST.format('fill')}[id-1,smoke]", f"{TEST.format('dry')}[id-4]", mill)
    assert unanswered(listed, read(LINES)) == [TEST.format("dry")]


@pytest.fixture
def answers(tmp_path):
    made = Answers(directory=tmp_path, driver="millpond")
    made.list.write_text(
        "\n".join(f"{TEST.format(each)}[id-9]" for each in ("fill", "drain", "dry"))
    )
    tmp_path.joinpath("millpond.results").write_text(LINES)
    return made


def test_only_what_is_missing_is_asked_for(answers):
    assert answers.missing() == [f"{TEST.format('dry')}[id-9]"]


def test_all_but_what_passed_is_asked_for_once_more(answers):
    answers.keep_passed()
    assert answers.missing() == [f"{TEST.format(each)}[id-9]" for each in ("drain", "dry")]
    (kept,) = answers.outcomes().values()
    assert (kept.status, kept.seconds) == (Status.PASSED, 2.4)


def test_the_page_has_counts_both_drivers_and_each_skip_with_its_reason():
    page = written(
        read(LINES),
        results(fill="passed", drain="passed"),
        listed=[TEST.format("dry")],
        patterns=WHOLE,
    )
    assert "| ours | 1 | 1 | 1 | 5 |" in page
    assert "| stock | 2 | 0 | 0 | 2 |" in page
    assert f"| {TEST.format('drain')} | failed, 3 s | passed, 1 s |" in page
    assert f"- {TEST.format('drain')}" in page
    assert "| AssertionError: 0 \\| 1 are left |" in page
    assert re.search(r"\| no mill \| .*MillTest", page)
    assert "- ours: 1 of 1" in page
    assert f"- {TEST.rpartition('.')[0]}: 1" in page
    assert all(reason in page for reason in LEFT_OUT.values())


def test_slow_tests_are_not_in_the_list():
    """A test's tags stand behind its name."""
    chosen = [re.compile(each) for each in WHOLE]

    def is_chosen(name):
        return any(each.search(name) for each in chosen)

    assert is_chosen("tempest.api.image.v2.test_x.T.test_x[id-1,smoke]")
    assert is_chosen("tempest.scenario.test_x.T.test_x[compute,id-1]")
    assert not is_chosen("tempest.api.compute.test_x.T.test_x[id-1,slow]")
    assert not is_chosen("tempest.api.volume.test_x.T.test_x[id-1]")


def test_the_short_list_is_of_the_whole_one():
    assert all(
        re.match(r"\^tempest\\\.(api\\\.(compute|image)|scenario)\\\.", each) for each in SHORT
    )
