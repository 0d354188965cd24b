"""The records of disks under Nova: short texts, and nothing lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import DamagedRecord, NewerRecord, StateProblem
from millpond.model.formats import Backend, DiskFormat
from millpond.model.names import ServerId, blank_template_name, volume_name
from millpond.model.server import Content, Disk, TemplateRef
from millpond.nova import short_records as short
from millpond.nova.short_records import DiskRecord

SERVER = ServerId("0b4b0991-a68c-4ae1-808c-ce3711bba641")

roles = st.sampled_from(["disk", "disk.eph0", "disk.swap", "disk.config", "disk.rescue"])
bases = st.builds(
    TemplateRef,
    pool=st.just("nova-base-images-pool"),
    volume=st.sampled_from(["a" * 40, f"{'b' * 40}.qcow2", blank_template_name("x", 1, "ext4")]),
    format=st.sampled_from(DiskFormat),
)


@st.composite
def records(draw: st.DrawFn) -> DiskRecord:
    role, base = draw(roles), draw(st.none() | bases)
    disk = Disk(
        role=role,
        backend=draw(st.sampled_from(Backend)),
        pool=draw(st.sampled_from(["nova-disks-pool", "nova-disks-pool-lvm"])),
        volume=volume_name(SERVER, role),
        format=draw(st.sampled_from(DiskFormat)),
        size=draw(st.integers(0, 2**50)),
        target="",
        content=draw(st.sampled_from(Content)),
        template=base,
        overlay=bool(base) and draw(st.booleans()),
    )
    return DiskRecord(disk=disk, made=draw(st.booleans()))


@given(records())
def test_a_record_comes_back_as_it_was_and_fits(record: DiskRecord) -> None:
    text = short.encode(record)
    assert len(text) <= short.LONGEST
    assert short.decode(text, SERVER, record.disk.role) == record


def test_a_record_that_nova_would_cut_off_is_refused() -> None:
    disk = Disk(
        role="disk",
        backend=Backend.RAW,
        pool="p" * 200,
        volume=volume_name(SERVER, "disk"),
        format=DiskFormat.RAW,
        size=1,
        target="",
        template=TemplateRef(pool="q" * 100, volume="v", format=DiskFormat.RAW),
    )
    with pytest.raises(StateProblem, match="Nova takes 255"):
        short.encode(DiskRecord(disk=disk, made=True))


@pytest.mark.parametrize("text", ["", "x", "[]", "{}", '[1,true,"raw"]', '["1"]'])
def test_a_damaged_record_is_never_guessed_at(text: str) -> None:
    with pytest.raises(DamagedRecord):
        short.decode(text, SERVER, "disk")


def test_a_record_of_a_later_version_is_said_to_be_that() -> None:
    with pytest.raises(NewerRecord):
        short.decode(f'[{short.SCHEMA + 1},"whatever"]', SERVER, "disk")
