"""Bytes, as people write and read them."""

import pytest

from millpond.errors import BadSize
from millpond.model.sizes import GiB, KiB, MiB, format_size, parse_size, whole_sectors


@pytest.mark.parametrize(
    ("text", "unit", "size"),
    [
        ("10", "g", 10 * GiB),
        ("10", "", 10),
        ("10b", "g", 10),
        ("1000B", "g", 1000),
        ("4k", "g", 4 * KiB),
        ("512 MiB", "", 512 * MiB),
        ("1.5t", "m", 1536 * GiB),
        ("2GB", "m", 2 * GiB),
    ],
)
def test_a_unit_that_is_written_counts(text, unit, size):
    assert parse_size(text, unit=unit) == size


@pytest.mark.parametrize("text", ["", "x", "-1", "1 GiBs", "1ib", "bb", "9e9", f"{2**63}", "1,5g"])
def test_what_is_no_size(text):
    with pytest.raises(BadSize):
        parse_size(text)


def test_a_disk_ends_with_a_sector():
    assert [whole_sectors(each) for each in (0, 1, 512, 513)] == [0, 512, 512, 1024]


def test_sizes_are_read_by_people():
    assert [format_size(each) for each in (0, 1023, KiB, 1536 * MiB)] == [
        "0 B",
        "1023 B",
        "1 KiB",
        "1.5 GiB",
    ]
