"""Labels, as they are typed and looked for."""

from pathlib import Path

import pytest

from millpond.errors import BadOption
from millpond.model.labels import change_labels, format_labels, parse_filter, parse_labels
from millpond.records import codec
from tests.unit import samples

LABELS = {"tier": "web", "team/owner": "a=b", "spare": ""}


def test_a_key_alone_has_an_empty_value_and_the_last_one_counts():
    assert parse_labels(["tier=db", "tier=web", "team/owner=a=b", "spare"]) == LABELS
    assert format_labels(LABELS) == "spare, team/owner=a=b, tier=web"


@pytest.mark.parametrize("text", ["", "=x", "a b=c", "-a=b", "a-", "k" * 64, "k=\x1b[1m", "é=x"])
def test_what_is_no_label_is_refused(text):
    for parse in (parse_labels, parse_filter):
        with pytest.raises(BadOption, match="is not KEY=VALUE"):
            parse([text])


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ([], True),
        (["tier"], True),
        (["tier=web"], True),
        (["tier=db"], False),
        (["tier=web", "spare"], True),
        (["tier=web", "gone"], False),
        (["spare="], True),
        (["tier="], False),
    ],
)
def test_all_that_is_asked_for_must_be_there(wanted, fits):
    assert parse_filter(wanted)(LABELS) is fits


def test_labels_change_one_by_one():
    changed = change_labels(LABELS, {"tier": "db", "new": "1"}, ["spare", "gone"])
    assert changed == {"tier": "db", "team/owner": "a=b", "new": "1"}


def test_a_record_from_before_has_none():
    server = samples.server()
    content = codec.encode_server(server)
    assert b'"labels"' in content
    older = content.replace(b' "labels": {},\n', b"")
    assert b'"labels"' not in older
    assert codec.decode_server(older, Path("x")).labels == {}
