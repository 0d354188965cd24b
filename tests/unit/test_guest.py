"""What a guest's console and cloud-init's result say of whether it is up."""

import json

import pytest

from millpond.servers.guest import Stage, judge_console, parse_result

KERNEL = b"[    0.000000] Linux version 6.1.0-38-cloud-amd64 (debian-kernel@lists.debian.org)\r\n"
LOCAL = b"[   21.5] cloud-init[231]: Cloud-init v. 22.4.2 running 'init-local' at Mon.\r\n"
LOGIN = b"\r\nDebian GNU/Linux 12 web ttyS0\r\n\r\nweb login: "
FINISHED = (
    b"[   61.2] cloud-init[402]: Cloud-init v. 22.4.2 finished at Mon, 16 Nov 2026 13:02:11. "
    b"Datasource DataSourceConfigDrive [net,ver=2][source=/dev/vdb].  Up 61.13 seconds\r\n"
)
TARGET = b"[\x1b[0;32m  OK  \x1b[0m] Reached target \x1b[0;1;39mcloud-init.target\x1b[0m.\r\n"
AVAILABLE = b"[  OK  ] Reached target cloud-config.target - Cloud-config availability.\r\n"
FAILED = (
    b"[   60.9] cloud-init[402]: 2026-11-16 13:02:11,5 - util.py[WARNING]: Running module "
    b"scripts-user (<module 'cloudinit.config.cc_scripts_user' from '/usr/lib/x.py'>) failed\r\n"
)


@pytest.mark.parametrize(
    ("printed", "stage"),
    [
        (b"", Stage.BOOT),
        (b"\xff\xfe\x00", Stage.BOOT),
        (KERNEL, Stage.BOOT),
        (KERNEL + LOCAL, Stage.CLOUD_INIT),
        (KERNEL + LOCAL + AVAILABLE + LOGIN, Stage.CLOUD_INIT),
        (KERNEL + LOCAL + LOGIN + FINISHED, Stage.NOTHING),
        (KERNEL + LOCAL + LOGIN + TARGET, Stage.NOTHING),
        (KERNEL + LOGIN, Stage.NOTHING),
        (KERNEL + LOGIN + b"[   70.1] a late line of the kernel", Stage.NOTHING),
        (KERNEL + LOCAL + FINISHED + LOGIN + KERNEL, Stage.BOOT),
        (KERNEL + LOCAL + FINISHED + KERNEL + LOCAL, Stage.CLOUD_INIT),
    ],
)
def test_the_console_says_how_far_a_guest_is(printed, stage):
    found = judge_console(printed)
    assert (found.stage, found.errors) == (stage, ())


def test_what_was_printed_before_a_start_says_nothing():
    before = KERNEL + LOCAL + FINISHED
    assert judge_console(before, before).stage is Stage.BOOT
    assert judge_console(before + LOCAL, before).stage is Stage.CLOUD_INIT
    assert judge_console(KERNEL + LOCAL, before).stage is Stage.CLOUD_INIT  # the log was rotated


def test_a_console_is_judged_whatever_a_guest_prints():
    """Looking for each beginning on one long line would take hours."""
    for words in (b"Reached target ", b"Running module x "):
        assert judge_console(KERNEL + LOCAL + words * 200_000).stage is not Stage.NOTHING


def test_the_console_names_modules_that_failed():
    found = judge_console(KERNEL + LOCAL + FAILED + FAILED + FINISHED)
    assert (found.stage, found.errors) == (Stage.NOTHING, ("module scripts-user failed",))


def test_cloud_inits_result_has_its_errors():
    text = "('scripts-user', RuntimeError('Runparts: 1 failures (runcmd)'))"
    result = {"v1": {"datasource": "DataSourceConfigDrive", "errors": [text]}}
    assert parse_result(json.dumps(result).encode()) == (text,)
    assert parse_result(b'{"v1": {"errors": []}}') == ()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"{",
        b"[]",
        b"[" * 60000,
        b'{"v1": []}',
        b'{"v1": {"errors": 7}}',
        b'{"v1": {"errors": {"a": 1}}}',
    ],
)
def test_a_result_that_a_guest_made_up_is_an_error(content):
    assert parse_result(content) == ("/run/cloud-init/result.json, which cannot be read",)


def test_of_endless_errors_only_the_first_are_told():
    errors = ["x" * 5000] * 50
    found = parse_result(json.dumps({"v1": {"errors": errors}}).encode())
    assert (len(found), {len(each) for each in found}) == (5, {300})
