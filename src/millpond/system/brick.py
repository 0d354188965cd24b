"""os-brick: makes devices and files of volumes that QEMU does not reach by itself.

It is an extra of ours and takes seconds to load, so this module is imported by name, where there
is such a volume. What it has of settings holds for the whole process.
"""

import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from os_brick import opts, privileged
from os_brick.exception import BrickException, VolumeDeviceNotFound
from os_brick.initiator.connectors.iscsi import ISCSIConnector
from os_brick.initiator.connectors.local import LocalConnector
from os_brick.initiator.connectors.remotefs import RemoteFsConnector
from oslo_concurrency import lockutils
from oslo_concurrency.processutils import ProcessExecutionError

from millpond.errors import VolumeNotConnected
from millpond.system.process import run

_TOOL = {"iscsi": "iscsiadm", "nfs": "mount.nfs"}
"""What os-brick starts for each kind of volume."""

_PACKAGES = {"iscsiadm": "open-iscsi", "mount.nfs": "nfs-common"}
"""The packages that have them."""

_BY_PATH = Path("/dev/disk/by-path")


class Brick:
    def __init__(self, mounts: Path, locks: Path | None) -> None:
        """Without a directory for its locks, the process is another's, as nova-compute, which has
        set up os-brick for itself."""
        self._mounts = mounts
        if locks:
            _set_up(locks)

    def connect(self, connection: Mapping[str, Any], name: str) -> Path:
        """A device by a name that does not depend on the order in which they came, or a file on
        a share that is mounted for ``name`` alone. Again, if it is connected already."""
        if tool := _missing_tool(connection):
            raise VolumeNotConnected(f"{tool} is not installed (package {_PACKAGES[tool]})")
        with _explaining(connection):
            found = self._connector(connection, name).connect_volume(dict(connection))
        path = Path(found["path"])
        if not path.exists():
            raise VolumeNotConnected(f"{path}, which it should be, is not there")
        return _find_stable_name(path) if _kind(connection) == "iscsi" else path

    def disconnect(self, connection: Mapping[str, Any], name: str) -> None:
        """One that is not connected is no error. Shares stay mounted."""
        if _missing_tool(connection):
            return  # nor was it used to connect
        with _explaining(connection):
            self._connector(connection, name).disconnect_volume(dict(connection), {})

    def _connector(self, connection: Mapping[str, Any], name: str) -> Any:
        """Not by os-brick's own table: that loads all of them, and eventlet with one."""
        match _kind(connection):
            case "iscsi":
                return ISCSIConnector("")
            case "nfs":
                base = {"mount_point_base": str(self._mounts / name)}
                return RemoteFsConnector("nfs", "", conn=base, nfs_mount_options="ro")
            case _:
                return LocalConnector("")


def _set_up(locks: Path) -> None:
    """We are root: os-brick's helper, which would become so, is not needed."""
    lockutils.set_defaults(str(locks))
    opts.set_defaults()
    for context in (privileged.default, privileged.brick_privsep_hide_output):
        context.set_client_mode(False)
    for name in ("os_brick", "oslo_concurrency", "oslo_privsep"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters is raised


def _kind(connection: Mapping[str, Any]) -> str:
    return str(connection["driver_volume_type"])


def _missing_tool(connection: Mapping[str, Any]) -> str:
    tool = _TOOL.get(_kind(connection), "")
    found = not tool or shutil.which(tool, path="/usr/sbin:/usr/bin:/sbin:/bin")
    return "" if found else tool


def _find_stable_name(path: Path) -> Path:
    """By-path names say where a device lies. Those by id say what it says of itself, which
    another one may say, too."""
    run(["udevadm", "settle", "--timeout=30"])
    device = path.resolve()
    for each in sorted(_BY_PATH.glob("*")):
        if each.resolve() == device:
            return each
    raise VolumeNotConnected(f"udev has no name for {path} in {_BY_PATH}")


@contextmanager
def _explaining(connection: Mapping[str, Any]) -> Iterator[None]:
    try:
        yield
    except ProcessExecutionError as error:
        reason = error.stderr or error.description or f"exit status {error.exit_code}"
        raise VolumeNotConnected(_redact(reason, connection)) from None
    except VolumeDeviceNotFound:
        reason = "gives us no device; the kernel's log and iscsid's may say more"
        raise VolumeNotConnected(f"{connection.get('target_portal')} {reason}") from None
    except (BrickException, OSError, KeyError, ValueError) as error:
        raise VolumeNotConnected(_redact(str(error), connection)) from None


def _redact(reason: str, connection: Mapping[str, Any]) -> str:
    """In one line, without the password, which may be among the words that were tried."""
    password = str(connection.get("auth_password") or "")
    told = reason.replace(password, "***") if password else reason
    return " ".join(told.split())
