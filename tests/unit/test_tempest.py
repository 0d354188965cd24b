"""What the comparison of both drivers by Tempest makes of results."""

import re

import pytest

from tests.tempest.outcome import Status, read, regressions, unanswered
from tests.tempest.page import written
from tests.tempest.selection import LEFT_OUT, SHORT, WHOLE

TEST = "tempest.api.compute.servers.test_pond.PondTest.test_{}"

JUNIT = """\
<testsuite errors="0" failures="1" name="" tests="4" time="9">
<testcase classname="tempest.api.compute.servers.test_pond.PondTest" name="test_fill[id-1,smoke]" time="2.4"/>
<testcase classname="tempest.api.compute.servers.test_pond.PondTest" name="test_drain[id-2]" time="3.0">
<failure type="testtools.testresult.real._StringException">Traceback (most recent call last):
  File "pond.py", line 1, in test_drain
AssertionError: 0 | 1 are left
}}}</failure>
</testcase>
<testcase classname="" name="setUpClass (tempest.api.compute.servers.test_mill.MillTest)" time="0">
<skipped>no mill</skipped>
</testcase>
</testsuite>
"""  # noqa: E501


def junit(**signs):
    cases = (
        f'<testcase classname="{TEST.rpartition(".")[0]}" name="test_{name}[id-9]" time="1">'
        f"{sign and f'<{sign}>because</{sign}>'}</testcase>"
        for name, sign in signs.items()
    )
    return read(f"<testsuite>{''.join(cases)}</testsuite>")


def test_results_are_read_by_the_names_of_the_tests():
    found = read(JUNIT)
    assert found[TEST.format("fill")].status is Status.PASSED
    assert found[TEST.format("fill")].seconds == 2.4
    assert found[TEST.format("drain")].status is Status.FAILED
    assert found[TEST.format("drain")].reason == "AssertionError: 0 | 1 are left"


def test_a_class_that_is_skipped_is_one_test_with_its_reason():
    (skipped,) = (each for each in read(JUNIT).values() if each.status is Status.SKIPPED)
    assert skipped.reason == "no mill"


@pytest.mark.parametrize("sign", ["failure", "error", "skipped"])
def test_what_passes_on_the_stock_driver_has_to_pass_on_ours(sign):
    assert regressions(junit(fill=sign), junit(fill="")) == [TEST.format("fill")]


def test_what_did_not_run_on_ours_did_not_pass():
    assert regressions(junit(), junit(fill="")) == [TEST.format("fill")]


def test_what_fails_on_both_or_on_the_stock_driver_alone_is_no_regression():
    assert regressions(junit(fill="failure", drain=""), junit(fill="failure", drain="error")) == []


def test_what_did_not_run_is_named_but_for_classes_that_were_skipped():
    mill = "tempest.api.compute.servers.test_mill.MillTest.test_grind[id-3]"
    listed = (f"{TEST.format('fill')}[id-1,smoke]", f"{TEST.format('dry')}[id-4]", mill)
    assert unanswered(listed, read(JUNIT)) == [TEST.format("dry")]


def test_the_page_has_counts_both_drivers_and_each_skip_with_its_reason():
    page = written("2026-11-18", read(JUNIT), junit(fill="", drain=""), [TEST.format("dry")])
    assert "| ours | 1 | 1 | 1 | 5 |" in page
    assert "| stock | 2 | 0 | 0 | 2 |" in page
    assert f"| {TEST.format('drain')} | failed, 3 s | passed, 1 s |" in page
    assert f"- {TEST.format('drain')}" in page
    assert "| AssertionError: 0 \\| 1 are left |" in page
    assert re.search(r"\| no mill \| .*MillTest", page)
    assert "- ours: 1 of 1" in page
    assert f"- {TEST.format('dry')}" in page
    assert all(reason in page for reason in LEFT_OUT.values())


def test_slow_tests_are_not_in_the_list():
    """As Nova's gate leaves them out; a test's tags stand behind its name."""
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
