"""Which image formats a host takes: the table that decides is the one that reports."""

import pytest

from millpond.disks.image_types import refuse_unless_taken, supported_formats
from millpond.disks.selection import Selection
from millpond.errors import Unsupported
from millpond.model.formats import Backend, ImageFormat

NATIVE = Selection(mapping={ImageFormat.QCOW2: Backend.QCOW2, ImageFormat.RAW: Backend.RAW})
ALL = frozenset(ImageFormat)


def test_everything_that_can_be_a_disk_is_taken_where_conversion_counts() -> None:
    assert supported_formats(NATIVE, frozenset(), converted=True) == ALL


def test_without_conversion_only_what_serves_as_it_is() -> None:
    found = supported_formats(NATIVE, frozenset(), converted=False)
    assert {ImageFormat.RAW, ImageFormat.QCOW2, ImageFormat.ISO, ImageFormat.AKI} <= found
    assert not found & {ImageFormat.VMDK, ImageFormat.VHD, ImageFormat.VHDX, ImageFormat.VDI}


def test_what_is_excluded_is_not_taken() -> None:
    excluded = frozenset({ImageFormat.VMDK})
    found = supported_formats(NATIVE, excluded, converted=True)
    assert found == ALL - excluded
    refuse_unless_taken("qcow2", found)
    with pytest.raises(Unsupported, match="an image of the format vmdk"):
        refuse_unless_taken("vmdk", found)


def test_a_format_that_nobody_knows_is_refused() -> None:
    with pytest.raises(Unsupported):
        refuse_unless_taken("docker", ALL)


def test_of_an_unknown_hypervisor_nothing_is_known_to_work() -> None:
    assert supported_formats(NATIVE, frozenset(), converted=True, hypervisor="xen") == frozenset()


def test_guests_of_parallels_have_ploop_disks_alone() -> None:
    ploop = Selection(mapping={ImageFormat.PLOOP: Backend.PLOOP, ImageFormat.RAW: Backend.PLOOP})
    found = supported_formats(ploop, frozenset(), converted=True, hypervisor="parallels")
    assert found == {ImageFormat.PLOOP, ImageFormat.RAW}
    native = supported_formats(ploop, frozenset(), converted=False, hypervisor="parallels")
    assert native == {ImageFormat.PLOOP}


def test_where_the_files_are_elsewhere_nothing_becomes_a_ploop_disk() -> None:
    ploop = Selection(mapping={ImageFormat.PLOOP: Backend.PLOOP})
    found = supported_formats(ploop, frozenset(), converted=True, local=False)
    assert found == ALL - {ImageFormat.PLOOP}
