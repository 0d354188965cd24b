"""Request to query: pure, whatever flavours and images say."""

import os_traits
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import BadRequirement, ImageTypeUnknown
from millpond.model.formats import ImageFormat
from millpond.model.sizes import GiB, MiB
from millpond.scheduling import traits
from millpond.scheduling.query import (
    ALWAYS,
    Purpose,
    placement_query,
    plain_query,
    require_image_type_support,
    require_traits,
)
from tests.support.scheduling import request

FILTERS = (require_image_type_support, *ALWAYS)


def query(wanted, filters=FILTERS):
    return placement_query(wanted, filters)


def test_all_eleven_image_types_have_their_trait():
    names = ["AKI", "AMI", "ARI", "ISO", "PLOOP", "QCOW2", "RAW", "VDI", "VHD", "VHDX", "VMDK"]
    assert set(traits.IMAGE_TYPES.values()) == {f"COMPUTE_IMAGE_TYPE_{each}" for each in names}


def test_every_trait_of_ours_is_known_to_os_traits_or_custom():
    assert traits.OURS - set(os_traits.get_traits()) == traits.CUSTOM


@pytest.mark.parametrize("hypervisor", ["QEMU", "KVM", "parallels", "Parallels"])
def test_hypervisors_that_take_images_report_them(hypervisor):
    taken = traits.of_images(hypervisor, [ImageFormat.VHD])
    assert taken == {"COMPUTE_IMAGE_TYPE_VHD"}


@pytest.mark.parametrize("hypervisor", ["lxc", "VZ", "test", "Xen", "bhyve", "VMware", ""])
def test_any_other_hypervisor_reports_none(hypervisor):
    assert traits.of_images(hypervisor, list(ImageFormat)) == frozenset()


@pytest.mark.parametrize("format", list(ImageFormat))
@pytest.mark.parametrize("purpose", list(Purpose))
def test_the_host_and_the_pool_are_asked_for_the_image_type(format, purpose):
    asked = query(request(format.value, purpose=purpose))
    trait = traits.IMAGE_TYPES[format]
    assert trait in asked.required
    assert dict(asked.params())["required_ROOT"] == trait


def test_disabled_hosts_are_for_servers_that_are_there():
    for purpose in Purpose:
        asked = query(request(purpose=purpose))
        assert (traits.DISABLED in asked.forbidden) is (purpose is not Purpose.REBUILD)


def test_a_query_says_all_that_is_needed_rounded_up():
    wanted = request("raw", vcpus=3, memory=GiB + 1, root=10 * GiB + 1, blank=MiB)
    assert dict(query(wanted).within("12").params()) == {
        "resources": "VCPU:3,MEMORY_MB:1025",
        "root_required": "COMPUTE_IMAGE_TYPE_RAW,!COMPUTE_STATUS_DISABLED",
        "resources_ROOT": "DISK_GB:11",
        "required_ROOT": "COMPUTE_IMAGE_TYPE_RAW",
        "resources_BLANK": "DISK_GB:1",
        "group_policy": "none",
        "in_tree": "12",
    }


def test_without_disks_no_disk_is_asked_for():
    wanted = request(None, boots_from_volume=True, root=0)
    assert [name for name, _ in query(wanted).params()] == ["resources", "root_required"]


@pytest.mark.parametrize(
    ("name", "trait"),
    [
        ("x86_64", "HW_ARCH_X86_64"),
        ("x86_64 ", "HW_ARCH_X86_64"),
        ("amd64", "HW_ARCH_X86_64"),
        ("i386", "HW_ARCH_I686"),
        ("AArch64", "HW_ARCH_AARCH64"),
        ("arm64", "HW_ARCH_AARCH64"),
        ("armv7l", "HW_ARCH_ARMV7"),
        ("ppc64le", "HW_ARCH_PPC64LE"),
        ("s390x", "HW_ARCH_S390X"),
    ],
)
def test_an_architecture_is_a_trait(name, trait):
    asked = query(request(image_properties={"hw_architecture": name}))
    assert trait in asked.required


@pytest.mark.parametrize("name", ["riscv64", "loongarch64", "vax", " "])
def test_an_architecture_without_a_trait_fails_closed(name):
    wanted = request(image_properties={"hw_architecture": name})
    with pytest.raises(BadRequirement, match="hw_architecture"):
        query(wanted)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("trait:CUSTOM_X", "maybe", "neither required nor forbidden"),
        ("trait:CUSTOM_X", "", "neither required nor forbidden"),
        ("trait:custom_x", "required", "no name of a trait"),
        ("trait:", "required", "no name of a trait"),
        ("trait:A,B", "required", "no name of a trait"),
        ("trait:A&required=B", "required", "no name of a trait"),
        ("trait:A\n", "required", "no name of a trait"),
        ("trait1:CUSTOM_X", "required", "groups"),
        ("trait_ROOT:CUSTOM_X", "forbidden", "groups"),
    ],
)
def test_what_cannot_be_meant_is_said(key, value, reason):
    for properties in ({"extra_specs": {key: value}}, {"image_properties": {key: value}}):
        with pytest.raises(BadRequirement, match=reason):
            query(request(**properties))


def test_other_properties_are_none_of_our_business():
    plain = query(request())
    others = {"hw:cpu_policy": "dedicated", "traits": "x", "hw_disk_bus": "scsi"}
    assert query(request(extra_specs=others, image_properties=others)) == plain


NAMES = st.from_regex(r"[A-Z][A-Z0-9_]{0,30}", fullmatch=True)
WISHES = st.dictionaries(NAMES, st.sampled_from(["required", "forbidden", " Required "]))


@given(WISHES, WISHES)
def test_traits_of_flavour_and_image_are_both_asked_for(flavour, image):
    wanted = request(
        extra_specs={f"trait:{name}": wish for name, wish in flavour.items()},
        image_properties={f"trait:{name}": wish for name, wish in image.items()},
    )
    stated = [
        (name, wish.strip().lower()) for each in (flavour, image) for name, wish in each.items()
    ]
    required = {name for name, wish in stated if wish == "required"}
    forbidden = {name for name, wish in stated if wish == "forbidden"}
    if required & forbidden:
        with pytest.raises(BadRequirement, match="forbidden at the same time"):
            require_traits(wanted, plain_query(wanted))
        return
    asked = require_traits(wanted, plain_query(wanted))
    assert (asked.required, asked.forbidden) == (required, forbidden)


@given(st.dictionaries(st.text(), st.text()), st.one_of(st.none(), st.text()))
def test_a_filter_only_adds_and_raises_nothing_but_our_errors(properties, format):
    wanted = request(format, extra_specs=properties, image_properties=properties)
    before = plain_query(wanted)
    try:
        after = query(wanted)
    except (BadRequirement, ImageTypeUnknown):
        return
    assert after.required >= before.required
    assert after.forbidden >= before.forbidden
    assert (after.vcpus, after.memory, after.root) == (before.vcpus, before.memory, before.root)


@given(st.text())
def test_only_the_eleven_formats_are_ever_let_through(format):
    try:
        query(request(format))
    except ImageTypeUnknown:
        assert format.lower() not in traits.IMAGE_TYPES
    else:
        assert format.lower() in traits.IMAGE_TYPES


def test_a_filter_can_be_left_out():
    assert traits.IMAGE_TYPES["qcow2"] not in query(request("qcow2"), ALWAYS).required
    assert query(request("docker"), ALWAYS).root == 5
