"""The parts of doctor that are pure: AppArmor's rules, and setting one option in a file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond import config
from millpond.config.option_file import find_option, make_change, plan_change, with_option
from millpond.doctor.apparmor_rules import parse_rule, permissions, read_rules
from millpond.doctor.checks import CHECKS
from millpond.doctor.finding import counted, some
from millpond.doctor.permissions import find_closed_terminals
from millpond.libvirt.virtualization import QemuUser

DISK = "/var/lib/millpond/instances/disks/8a1f6b52-0a6f-4a0e-9f1c-3d2b7f4c9e01_disk"


@pytest.mark.parametrize(
    ("mode", "uid", "found"), [(0o000, 64055, 1), (0o666, 64055, 0), (0, 0, 0)]
)
def test_terminals_that_are_closed_to_qemus_user_are_a_problem(tmp_path, mode, uid, found):
    ptmx = tmp_path / "ptmx"
    ptmx.touch()
    ptmx.chmod(mode)
    user = QemuUser(uid=uid, gids=frozenset({64055}))
    findings = list(find_closed_terminals(user, ptmx))
    assert [each.do for each in findings] == ["mount -o remount,ptmxmode=0666 /dev/pts"] * found
    assert not list(find_closed_terminals(None, ptmx))


def allowed(*lines, path=DISK):
    rules = [rule for line in lines if (rule := parse_rule(line))]
    return "".join(sorted(permissions(rules, path)))


@pytest.mark.parametrize(
    "line",
    [
        '"/var/lib/millpond/instances/disks/**" rwk,',
        "/var/lib/millpond/instances/disks/** rwk,",
        "  /var/lib/millpond/instances/disks/* rwk,  # the disks",
        "rwk /var/lib/millpond/instances/disks/**,",
        "audit allow file /var/lib/millpond/** rwk,",
        "/{srv,var/lib}/millpond/instances/{disks,_base}/** rwk,",
        "/var/lib/millpond/instances/disks/????????-*_dis[jk] rwk,",
        "/var/lib/mill\\pond/**   rwk ,",
    ],
)
def test_a_rule_of_apparmor_that_covers_the_disks(line):
    assert allowed(line) == "krw"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "# /var/lib/millpond/instances/disks/** rwk,",
        '"/var/lib/millpond/instances/_base/**" rwk,',
        "/var/lib/millpond/* rwk,",
        "/var/lib/millpond/instances/disk/** rwk,",
        "/var/lib/millpond/instances/disks/** rwk",
        "owner /var/lib/millpond/instances/disks/** rwk,",
        "/var/lib/[millpond/** rwk,",
        "include <abstractions/base>",
        "capability dac_override,",
        "signal (receive) peer=libvirtd,",
    ],
)
def test_what_does_not_cover_the_disks(line):
    assert allowed(line) == ""


def test_rules_add_up_and_a_denial_wins():
    all_of_it = "/var/lib/millpond/** rk,"
    assert allowed(all_of_it, f"{DISK} w,") == "krw"
    assert allowed(all_of_it, f"{DISK} w,", "deny /var/lib/millpond/**_disk w,") == "kr"


def test_a_missing_file_of_rules_has_none(tmp_path):
    assert read_rules(tmp_path / "libvirt-qemu") == []


def set_to_qemu(before):
    return with_option(before, "libvirt", "virt_type", "qemu")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b"[libvirt]\nvirt_type = qemu\n"),
        (b"[DEFAULT]\na = 1", b"[DEFAULT]\na = 1\n\n[libvirt]\nvirt_type = qemu\n"),
        (b"[libvirt]", b"[libvirt]\nvirt_type = qemu\n"),
        (
            b"# hi\n[libvirt]\n#virt_type = kvm\nx = 1\n[api]\n",
            b"# hi\n[libvirt]\nvirt_type = qemu\n#virt_type = kvm\nx = 1\n[api]\n",
        ),
        (b"[libvirt]\nvirt_type=auto \n", b"[libvirt]\nvirt_type=qemu\n"),
        (b"[LibVirt]\r\nvirt_type: kvm\r\n", b"[LibVirt]\r\nvirt_type: qemu\r\n"),
        (
            b"[api]\nvirt_type = lxc\n[libvirt]\nvirt_type = kvm\nvirt_type = auto\n",
            b"[api]\nvirt_type = lxc\n[libvirt]\nvirt_type = kvm\nvirt_type = qemu\n",
        ),
        (b"[libvirt]\nvirt_type =\n", b"[libvirt]\nvirt_type =qemu\n"),
        (b"[libvirt]\n\xff = \xfe\n", b"[libvirt]\nvirt_type = qemu\n\xff = \xfe\n"),
    ],
)
def test_an_option_is_set_and_every_other_byte_stays(before, after):
    assert set_to_qemu(before) == after


lines = st.lists(
    st.sampled_from(
        [
            "[DEFAULT]",
            "[libvirt]",
            "[LIBVIRT]",
            "[api]",
            "virt_type = auto",
            "virt_type=kvm",
            "virt_type : auto",
            "# virt_type = auto",
            "; comment",
            "",
            "other = 1",
            "images_type = raw",
        ]
    )
)


@given(lines, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_what_oslo_config_reads_afterwards_is_what_was_set(tmp_path_factory, text, end, finished):
    inside = [*text]
    if inside and not inside[0].startswith("["):
        inside.insert(0, "[DEFAULT]")  # options before the first section are an error
    before = (end.join(inside) + (end if finished else "")).encode()
    after = set_to_qemu(before)
    assert find_option(after, "libvirt", "virt_type") == "qemu"
    assert set_to_qemu(after) == after
    path = tmp_path_factory.mktemp("option") / "millpond.conf"
    path.write_bytes(after)
    assert config.read([path]).libvirt.virt_type == "qemu"
    kept = [line for line in before.splitlines() if b"virt_type" not in line]
    assert [line for line in after.splitlines() if line in kept][: len(kept)] == kept


def test_the_file_that_rules_is_changed_and_keeps_its_owner_and_mode(tmp_path):
    first, second, third = (tmp_path / name for name in ("a", "b", "c"))
    first.write_text("[libvirt]\n")
    second.write_text("[libvirt]\nvirt_type = auto\n")
    third.write_text("[DEFAULT]\n")
    second.chmod(0o640)
    change = plan_change([first, second, third], "libvirt", "virt_type", "qemu")
    assert str(change) == f"[libvirt] virt_type = qemu in {second} (was auto)"
    make_change(change)
    assert second.read_text() == "[libvirt]\nvirt_type = qemu\n"
    assert second.stat().st_mode & 0o777 == 0o640
    assert first.read_text() == "[libvirt]\n"


def test_without_any_setting_it_goes_into_the_first_file_which_is_made(tmp_path):
    path = tmp_path / "etc" / "millpond.conf"
    change = plan_change([path, tmp_path / "other"], "libvirt", "virt_type", "qemu")
    assert str(change).endswith(f"{path} (was not set)")
    make_change(change)
    assert path.read_text() == "[libvirt]\nvirt_type = qemu\n"


def test_a_link_to_the_file_stays_a_link(tmp_path):
    (tmp_path / "real").write_text("")
    link = tmp_path / "link"
    link.symlink_to("real")
    make_change(plan_change([link], "libvirt", "virt_type", "qemu"))
    assert link.is_symlink()
    assert "qemu" in (tmp_path / "real").read_text()


def test_each_check_needs_only_checks_before_it_that_say_what_their_lack_means():
    before = {}
    for check in CHECKS:
        assert all(before.get(name) for name in check.needs), check.name
        assert check.name not in before
        before[check.name] = check.lack


def test_numbers_and_lists_read_well():
    assert counted(1, "volume") == "1 volume"
    assert counted(0, "directory", "directories") == "0 directories"
    assert some(["a", "b"]) == "a, b"
    assert some(list("abcdefghij")) == "a, b, c, d, e, f, g, h and 2 more"
