"""The grammar of images_type_mapping: the document's examples, then everything else (B1, B2, B3,
B4, B6, B7)."""

import logging
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.disks.selection import (
    SOURCES,
    ImagesType,
    parse_images_type,
    parse_images_type_mapping,
    split_entries,
)
from millpond.errors import BadOption
from millpond.model.formats import Backend, ImageFormat


def parse(text: str) -> Mapping[ImageFormat, Backend]:
    return parse_images_type_mapping(split_entries(text))


# The eight examples of "Libvirt runtime image type", in its order (B2).


@pytest.mark.parametrize(
    ("images_type", "text", "expected"),
    [
        ("default", "raw:lvm, ploop:ploop", {"raw": "lvm", "ploop": "ploop"}),
        ("lvm", "qcow2:qcow2", {"qcow2": "qcow2"}),
        ("qcow2", "raw:raw, ploop:ploop", {"raw": "raw", "ploop": "ploop"}),
        ("default", "raw:raw, qcow2:qcow2", {"raw": "raw", "qcow2": "qcow2"}),
        ("default", "", {}),
    ],
)
def test_b2_the_correct_examples_are_accepted(
    images_type: str, text: str, expected: dict[str, str]
) -> None:
    assert parse_images_type(images_type) == ImagesType(images_type)
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("images_type", "text", "reason"),
    [
        ("default", "qcow2:raw, qcow2:qcow2", "'qcow2:qcow2' contradicts 'qcow2:raw'"),
        ("default", "raw:rbd, raw:lvm", "'raw:lvm' contradicts 'raw:rbd'"),
        (
            "default",
            "lvm:rbd, rbd:rbd",
            "'lvm' in 'lvm:rbd' cannot be a source; 'rbd' in 'rbd:rbd' cannot be a source",
        ),
    ],
)
def test_b2_b3_the_incorrect_examples_are_refused(
    images_type: str, text: str, reason: str
) -> None:
    assert parse_images_type(images_type) is ImagesType.DEFAULT
    with pytest.raises(BadOption) as refusal:
        parse(text)
    assert refusal.value.reason == reason


# What the document leaves open.


@pytest.mark.parametrize("text", ["", " ", "\t", "\n  "])
def test_b4_an_empty_value_maps_nothing(text: str) -> None:
    assert parse(text) == {}


@pytest.mark.parametrize("source", ["aki", "ari", "lvm", "rbd", "flat", "default"])
def test_b6_what_no_image_can_be_is_refused_as_a_source(source: str) -> None:
    with pytest.raises(BadOption, match=f"'{source}' in '{source}:raw' cannot be a source"):
        parse(f"{source}:raw")


@pytest.mark.parametrize("source", SOURCES)
def test_b6_every_format_that_can_be_a_disk_is_a_source(source: ImageFormat) -> None:
    assert parse(f"{source}:qcow2") == {source: Backend.QCOW2}


@pytest.mark.parametrize("backend", ["default", "libvirt-storage", "vmdk", "iso"])
def test_b6_values_of_images_type_alone_are_refused_as_backends(backend: str) -> None:
    with pytest.raises(BadOption, match=f"'{backend}' in 'raw:{backend}' is not a backend"):
        parse(f"raw:{backend}")


def test_b6_flat_is_raw_and_so_not_ambiguous() -> None:
    assert parse("raw:raw, raw:flat") == {ImageFormat.RAW: Backend.RAW}


@pytest.mark.parametrize(
    "text", ["raw:raw,", ",raw:raw", "raw:raw,,qcow2:qcow2", ",", "raw:raw, \n"]
)
def test_b7_a_stray_comma_is_an_error(text: str) -> None:
    with pytest.raises(BadOption, match="empty entry") as refusal:
        parse(text)
    assert "commas only between entries" in refusal.value.advice


@pytest.mark.parametrize("entry", ["raw", "raw:", ":raw", ":", "raw:raw:raw", "raw::raw", "a b"])
def test_b7_an_entry_of_another_form_is_quoted_and_both_sides_are_listed(entry: str) -> None:
    with pytest.raises(BadOption) as refusal:
        parse(entry)
    assert f"{entry!r} is not of the form source:backend" in refusal.value.reason
    for name in (*SOURCES, *Backend, "flat"):
        assert name in refusal.value.advice


def test_b7_an_unknown_name_is_quoted_with_its_entry_and_what_is_allowed() -> None:
    with pytest.raises(BadOption) as refusal:
        parse("qcow2:zfs")
    assert str(refusal.value) == (
        "[libvirt] images_type_mapping: 'zfs' in 'qcow2:zfs' is not a backend"
    )
    assert refusal.value.advice == "backends: raw, qcow2, lvm, rbd, ploop, flat"


def test_b7_the_same_pair_twice_is_accepted_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert parse("qcow2:raw, QCOW2 : flat") == {ImageFormat.QCOW2: Backend.RAW}
    assert caplog.messages == ["[libvirt] images_type_mapping has qcow2:raw more than once"]


def test_b7_different_pairs_bring_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    parse("qcow2:raw, raw:raw")
    assert caplog.messages == []


def test_b9_every_wrong_entry_is_named_at_once() -> None:
    with pytest.raises(BadOption) as refusal:
        parse("lvm:raw, qcow2:zfs, vmdk, raw:raw, raw:lvm,")
    assert refusal.value.reason.split("; ") == [
        "'lvm' in 'lvm:raw' cannot be a source",
        "'zfs' in 'qcow2:zfs' is not a backend",
        "'vmdk' is not of the form source:backend",
        "'raw:lvm' contradicts 'raw:raw'",
        "'' is an empty entry",
    ]


@pytest.mark.parametrize("text", ["flat", "FLAT", " raw "])
def test_b6_images_type_knows_flat_and_folds_case(text: str) -> None:
    assert parse_images_type(text) is ImagesType.RAW


@pytest.mark.parametrize("text", ["", "zfs", "raw:raw", "vmdk"])
def test_b6_images_type_refuses_the_rest_and_lists_what_is_allowed(text: str) -> None:
    with pytest.raises(BadOption) as refusal:
        parse_images_type(text)
    for name in (*ImagesType, "flat"):
        assert name in refusal.value.advice


# The grammar as a whole.

_SPACE = st.text(alphabet=" \t\n", max_size=3)
_MAPPINGS = st.dictionaries(st.sampled_from(SOURCES), st.sampled_from(list(Backend)))


@st.composite
def _written(draw: st.DrawFn, name: str) -> str:
    """A name as somebody may write it."""
    word = "flat" if name == "raw" and draw(st.booleans()) else name
    capitals = draw(st.lists(st.booleans(), min_size=len(word), max_size=len(word)))
    letters = (c.upper() if up else c for c, up in zip(word, capitals, strict=True))
    return draw(_SPACE) + "".join(letters) + draw(_SPACE)


@st.composite
def _texts(draw: st.DrawFn) -> tuple[Mapping[ImageFormat, Backend], str]:
    mapping = draw(_MAPPINGS)
    pairs = list(mapping.items())
    if pairs:
        pairs += draw(st.lists(st.sampled_from(pairs), max_size=2))
    pairs = draw(st.permutations(pairs))
    entries = [
        f"{draw(_SPACE)}{source.upper() if draw(st.booleans()) else source}{draw(_SPACE)}"
        f":{draw(_written(backend.value))}"
        for source, backend in pairs
    ]
    return mapping, ",".join(entries)


@given(_texts())
def test_every_unambiguous_mapping_survives_spacing_case_order_and_repetition(
    written: tuple[Mapping[ImageFormat, Backend], str],
) -> None:
    mapping, text = written
    assert parse(text) == mapping


@given(_MAPPINGS, st.sampled_from(SOURCES), st.data())
def test_a_source_with_two_backends_is_always_refused(
    mapping: dict[ImageFormat, Backend], source: ImageFormat, data: st.DataObject
) -> None:
    one, other = data.draw(st.permutations(list(Backend)))[:2]
    entries = [f"{left}:{right}" for left, right in mapping.items()]
    entries += [f"{source}:{one}", f"{source}:{other}"]
    with pytest.raises(BadOption, match="contradicts"):
        parse_images_type_mapping(data.draw(st.permutations(entries)))


_FRAGMENTS = st.sampled_from(["raw", "qcow2", "lvm", "flat", "aki", ":", ",", " ", "\n", "x", "É"])


@given(st.one_of(st.text(), st.lists(_FRAGMENTS).map("".join)))
def test_anything_else_is_a_mapping_of_known_names_or_bad_option(text: str) -> None:
    try:
        mapping = parse(text)
    except BadOption:
        return
    assert set(mapping) <= set(SOURCES)
    assert set(mapping.values()) <= set(Backend)
