"""A real iSCSI target with a password, and the kernel's initiator, in the nested machine."""

import itertools
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PORTAL = "127.0.0.1:3260"
PASSWORD = "water-lily-12"
_USER = "pond"
_NAME = "iqn.2026-11.test.millpond"
_numbers = itertools.count(1)


def start_iscsi() -> None:
    """Both daemons outlive the session: the machine ends with it."""
    Path("/run/tgtd").mkdir(exist_ok=True)
    Path("/run/lock/iscsi").mkdir(parents=True, exist_ok=True)
    Path("/etc/iscsi/initiatorname.iscsi").write_text(f"InitiatorName={_NAME}:host\n")
    _run("modprobe", "iscsi_tcp")
    _run("iscsid")
    _run("tgtd", "--iscsi", f"portal={PORTAL}")
    _run("tgtadm", "--op", "new", "--mode", "account", "--user", _USER, "--password", PASSWORD)


@contextmanager
def offered(device: Path) -> Iterator[dict[str, Any]]:
    """A target with one LUN, as Cinder's LVM driver makes them, and how Cinder says it is
    reached."""
    number = str(next(_numbers))
    target = f"{_NAME}:volume-{number}"
    _tgtadm("new", "target", number, "--targetname", target)
    _tgtadm("new", "logicalunit", number, "--lun", "1", "--backing-store", str(device))
    _tgtadm("bind", "account", number, "--user", _USER)
    _tgtadm("bind", "target", number, "--initiator-address", "ALL")
    try:
        yield {
            "driver_volume_type": "iscsi",
            "target_discovered": False,
            "target_portal": PORTAL,
            "target_iqn": target,
            "target_lun": 1,
            "auth_method": "CHAP",
            "auth_username": _USER,
            "auth_password": PASSWORD,
            "access_mode": "ro",
            "encrypted": False,
        }
    finally:
        log_out(target)
        _tgtadm("delete", "target", number, "--force")


def log_in(connection: dict[str, Any]) -> None:
    """Behind Millpond's back."""
    words = ("iscsiadm", "-m", "node", "-T", connection["target_iqn"], "-p", PORTAL)
    _run(*words, "--op", "new")
    for key, value in (("authmethod", "CHAP"), ("username", _USER), ("password", PASSWORD)):
        _run(*words, "--op", "update", "-n", f"node.session.auth.{key}", "-v", value)
    _run(*words, "--login")
    _run("udevadm", "settle")


def log_out(target: str) -> None:
    """As after a restart of the host: the device is gone."""
    for deed in (["--logout"], ["--op", "delete"]):
        words = ["iscsiadm", "-m", "node", "-T", target, *deed]
        subprocess.run(words, capture_output=True, timeout=60)
    _run("udevadm", "settle")


def sessions() -> list[str]:
    """Targets that the kernel is connected to."""
    words = ["iscsiadm", "-m", "session"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    return [line.split()[3] for line in done.stdout.splitlines()]


def known() -> str:
    """All that the initiator has on record."""
    words = ["iscsiadm", "-m", "node"]
    return subprocess.run(words, capture_output=True, text=True, timeout=60).stdout


def _tgtadm(deed: str, what: str, number: str, *words: str) -> None:
    _run("tgtadm", "--lld", "iscsi", "--op", deed, "--mode", what, "--tid", number, *words)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
