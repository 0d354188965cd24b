"""Which templates stay and which go, and why."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.formats import DiskFormat
from millpond.model.names import ImageId
from millpond.model.sizes import GiB
from millpond.model.template import Prepared, Template
from millpond.templates.verdicts import Cached, Rules, decide

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
RULES = Rules(removes_unused=True, minimum_age=DAY, max_bytes=0)


def template(name):
    return Template(
        image=ImageId("an-image"),
        image_digest="",
        pool="nova-base-images-pool",
        volume=name,
        format=DiskFormat.RAW,
        virtual_size=GiB,
        size=GiB,
        prepared=Prepared.DOWNLOAD,
        digest=None,
        created="2026-01-01T00:00:00+00:00",
    )


def cached(name="base", age=2 * DAY, **changes):
    return Cached(template=template(name), space=GiB, last_used=NOW - age, **changes)


def fate(one, rules=RULES):
    (verdict,) = decide([one], rules, NOW)
    return verdict.goes, verdict.reason


def test_what_was_long_unused_goes():
    assert fate(cached()) == (True, "unused since 2026-04-29 12:00:00")


@pytest.mark.parametrize(
    ("kept", "reason"),
    [
        (cached(users=("web", "db")), "used by web, db"),
        (cached(users=("web",), pinned_by="root", image_gone=True), "used by web"),
        (cached(pinned_by="root"), "pinned by root"),
        (cached(pinned_by="root", image_gone=True), "pinned by root"),
        (cached(age=DAY - timedelta(seconds=1)), "unused since 2026-04-30 12:00:01"),
    ],
)
def test_what_is_used_pinned_or_young_stays(kept, reason):
    assert fate(kept) == (False, reason)


def test_it_is_said_when_a_young_one_would_go():
    (verdict,) = decide([cached(age=DAY / 2)], RULES, NOW)
    assert verdict.goes_at == NOW + DAY / 2


def test_the_template_of_an_image_that_is_gone_goes_however_young():
    assert fate(cached(age=timedelta(0), image_gone=True)) == (True, "its image is gone")


def test_nothing_goes_by_its_age_where_that_is_switched_off():
    off = replace(RULES, removes_unused=False)
    assert fate(cached(image_gone=True), off)[0] is False
    assert fate(cached(), off.at_once())[0] is True


def test_a_cache_that_is_too_large_loses_the_least_recently_used_first():
    hour = timedelta(hours=1)
    shelf = [cached(f"t{age}", age=age * hour) for age in (3, 1, 5, 2, 4)]
    shelf[2] = replace(shelf[2], users=("web",))
    verdicts = decide(shelf, replace(RULES, max_bytes=4 * GiB), NOW)
    # Down to nine tenths of four, so two have to go: not t5, which is used.
    assert [each.cached.template.volume for each in verdicts if each.goes] == ["t3", "t4"]


def test_a_link_is_no_reason_for_a_cache_to_be_too_large_and_never_evicted():
    """B47: nothing is won by removing what takes no space."""
    link = replace(cached("link", age=DAY / 2), space=0)
    file = cached("file", age=DAY / 4)
    verdicts = decide([link, file], replace(RULES, max_bytes=GiB // 2), NOW)
    assert [each.goes for each in verdicts] == [False, True]


shelves = st.lists(
    st.builds(
        Cached,
        template=st.integers(0, 10**6).map(lambda number: template(f"t{number}")),
        space=st.integers(0, 10 * GiB),
        last_used=st.timedeltas(timedelta(0), 5 * DAY).map(lambda age: NOW - age),
        users=st.sampled_from([(), ("web",)]),
        pinned_by=st.sampled_from(["", "root"]),
        image_gone=st.booleans(),
    ),
    unique_by=lambda each: each.template.volume,
)


@given(shelf=shelves, bound=st.integers(0, 30 * GiB), removes=st.booleans())
def test_the_bound_holds_and_what_is_used_or_pinned_always_stays(shelf, bound, removes):
    rules = Rules(removes_unused=removes, minimum_age=DAY, max_bytes=bound)
    verdicts = decide(shelf, rules, NOW)
    assert [each.cached for each in verdicts] == shelf
    needed = [each for each in verdicts if each.cached.users or each.cached.pinned_by]
    assert not any(each.goes for each in needed)
    left = sum(each.cached.space for each in verdicts if not each.goes)
    if bound:
        assert left <= max(bound, sum(each.cached.space for each in needed))
