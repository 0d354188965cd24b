"""Which backend and which template an image gets (B1, B5, B8, B10, B12)."""

from itertools import product

import pytest

from millpond.disks.selection import SOURCES, ImagesType, Selection
from millpond.errors import Unsupported
from millpond.model.formats import Backend, DiskFormat, ImageFormat

EVERYTHING = [
    Selection(images_type=kind, use_cow_images=cow, force_raw_images=force)
    for kind, cow, force in product(ImagesType, (True, False), (True, False))
]


def test_b1_a_listed_source_goes_where_the_mapping_says() -> None:
    selection = Selection(
        images_type=ImagesType.QCOW2, mapping={ImageFormat.RAW: Backend.LVM}, use_cow_images=False
    )
    choice = selection.choose(ImageFormat.RAW)
    assert choice.backend is Backend.LVM
    assert choice.reason == "images_type_mapping has raw:lvm"


def test_b1_a_source_that_is_not_listed_goes_to_images_type() -> None:
    selection = Selection(images_type=ImagesType.RBD, mapping={ImageFormat.RAW: Backend.RAW})
    choice = selection.choose(ImageFormat.VMDK)
    assert choice.backend is Backend.RBD
    assert choice.reason == "images_type = rbd"


def test_b4_nothing_set_changes_nothing() -> None:
    choices = {source: Selection().choose(source) for source in SOURCES}
    assert {each.backend for each in choices.values()} == {Backend.QCOW2}
    assert {each.template_format for each in choices.values()} == {DiskFormat.RAW}
    assert {each.reason for each in choices.values()} == {"images_type = default, copy-on-write"}


@pytest.mark.parametrize("images_type", [ImagesType.DEFAULT, ImagesType.LIBVIRT_STORAGE])
@pytest.mark.parametrize(
    ("cow", "backend", "how"),
    [(True, Backend.QCOW2, "copy-on-write"), (False, Backend.RAW, "no copy-on-write")],
)
def test_b8_default_follows_use_cow_images(
    images_type: ImagesType, cow: bool, backend: Backend, how: str
) -> None:
    choice = Selection(images_type=images_type, use_cow_images=cow).choose(ImageFormat.VDI)
    assert choice.backend is backend
    assert choice.reason == f"images_type = {images_type}, {how}"


@pytest.mark.parametrize("cow", [True, False])
def test_b8_mapping_entries_do_not_depend_on_use_cow_images(cow: bool) -> None:
    mapping = {ImageFormat.QCOW2: Backend.QCOW2, ImageFormat.RAW: Backend.RAW}
    selection = Selection(mapping=mapping, use_cow_images=cow)
    assert selection.choose(ImageFormat.QCOW2).backend is Backend.QCOW2
    assert selection.choose(ImageFormat.RAW).backend is Backend.RAW


@pytest.mark.parametrize("force", [True, False])
def test_b10_a_mapped_qcow2_image_is_kept_whatever_force_raw_images_says(force: bool) -> None:
    selection = Selection(
        mapping={ImageFormat.QCOW2: Backend.QCOW2}, use_cow_images=False, force_raw_images=force
    )
    choice = selection.choose(ImageFormat.QCOW2)
    assert choice.template_format is DiskFormat.QCOW2
    assert choice.native


RAW, QCOW2, PLOOP = DiskFormat.RAW, DiskFormat.QCOW2, DiskFormat.PLOOP


@pytest.mark.parametrize(
    ("backend", "source", "force", "template", "native"),
    [
        ("raw", "raw", True, RAW, True),
        ("raw", "qcow2", False, RAW, False),
        ("raw", "iso", True, RAW, True),
        ("lvm", "qcow2", True, RAW, False),
        ("lvm", "ami", False, RAW, True),
        ("rbd", "raw", False, RAW, True),
        ("rbd", "vmdk", False, DiskFormat.VMDK, False),
        ("rbd", "qcow2", True, QCOW2, False),
        ("qcow2", "raw", True, RAW, True),
        ("qcow2", "raw", False, RAW, True),
        ("qcow2", "ami", False, RAW, True),
        ("qcow2", "qcow2", True, RAW, False),
        ("qcow2", "qcow2", False, QCOW2, True),
        ("qcow2", "vmdk", True, RAW, False),
        ("qcow2", "vmdk", False, QCOW2, False),
        ("qcow2", "ploop", False, QCOW2, False),
        ("ploop", "ploop", True, PLOOP, True),
        ("ploop", "raw", True, PLOOP, False),
        ("ploop", "qcow2", False, PLOOP, False),
    ],
)
def test_the_table_of_templates(
    backend: str, source: str, force: bool, template: DiskFormat, native: bool
) -> None:
    selection = Selection(images_type=ImagesType(backend), force_raw_images=force)
    choice = selection.choose(ImageFormat(source))
    assert choice.backend == backend
    assert choice.template_format is template
    assert choice.native is native


def test_another_source_mapped_to_qcow2_still_obeys_force_raw_images() -> None:
    mapping = {ImageFormat.VMDK: Backend.QCOW2}
    forced = Selection(mapping=mapping, force_raw_images=True)
    unforced = Selection(mapping=mapping, force_raw_images=False)
    assert forced.choose(ImageFormat.VMDK).template_format is RAW
    assert unforced.choose(ImageFormat.VMDK).template_format is QCOW2


@pytest.mark.parametrize("selection", EVERYTHING)
def test_native_means_that_the_template_is_what_the_image_contains(selection: Selection) -> None:
    for source in SOURCES:
        choice = selection.choose(source)
        kept = source.content is choice.template_format
        in_cluster = choice.backend is Backend.RBD and source.content is not RAW
        assert choice.native == (kept and not in_cluster)


@pytest.mark.parametrize("source", [ImageFormat.AKI, ImageFormat.ARI])
def test_b6_a_kernel_or_a_ramdisk_is_no_disk(source: ImageFormat) -> None:
    with pytest.raises(Unsupported, match=f"a disk from an {source} image"):
        Selection().choose(source)


@pytest.mark.parametrize("selection", EVERYTHING)
def test_b12_blank_disks_go_where_unlisted_images_go(selection: Selection) -> None:
    assert selection.blank_backend() is selection.choose(ImageFormat.VHDX).backend


def test_b12_blank_disks_do_not_follow_the_mapping() -> None:
    selection = Selection(images_type=ImagesType.LVM, mapping={ImageFormat.RAW: Backend.RAW})
    assert selection.blank_backend() is Backend.LVM


def test_b9_backends_are_all_that_images_type_and_the_mapping_lead_to() -> None:
    selection = Selection(
        mapping={ImageFormat.RAW: Backend.RBD, ImageFormat.QCOW2: Backend.LVM},
        use_cow_images=False,
    )
    assert selection.backends() == {Backend.RAW, Backend.RBD, Backend.LVM}


def test_b6_only_libvirt_storage_promises_that_no_legacy_disk_is_left() -> None:
    assert [each for each in ImagesType if each.pools_only] == [ImagesType.LIBVIRT_STORAGE]
