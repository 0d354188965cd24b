"""Our driver with Nova's own classes and a real libvirt, without a cloud: seconds, not minutes."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.support.ini import ini
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.openstack.environment import NOVA, OLDER_NOVA, python, python_path
from tests.support.openstack.nova import Sections, merged
from tests.support.openstack.service import isolated

PROGRAM = Path(__file__).parent / "programs/driver_alone.py"
TRANSITIONS = PROGRAM.with_name("transition_alone.py")
LVM = PROGRAM.with_name("lvm_alone.py")

_SECONDS = 240


def run(
    directory: Path,
    libvirtd: PrivateLibvirtd,
    scenarios: tuple[str, ...],
    extra: Sections | None = None,
    program: Path = PROGRAM,
    release: int = NOVA,
    seconds: float = _SECONDS,
) -> dict[str, Any]:
    """What came of each of these scenarios in the program; most of the time goes by before the
    first."""
    words = (program, *scenarios)
    done = start(directory, libvirtd, *words, extra=extra, release=release, seconds=seconds)
    assert done.returncode == 0, done.stderr[-5000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def start(
    directory: Path,
    libvirtd: PrivateLibvirtd,
    *words: object,
    extra: Sections | None = None,
    release: int = NOVA,
    variables: Mapping[str, str] = MappingProxyType({}),
    before: str = "",
    seconds: float = _SECONDS,
) -> subprocess.CompletedProcess[str]:
    """A program in Nova's environment, on the host, with a nova.conf; ``before``: a directory that
    Python looks into first."""
    conf = directory / "nova.conf"
    conf.write_text(ini(merged(_settings(directory, libvirtd), extra or {})))
    program = (python(release), "-W", "ignore", *words, "--config-file", conf)
    path = ":".join(filter(None, (before, python_path(directory))))
    threads = {"OS_NOVA_DISABLE_EVENTLET_PATCHING": "true"} if release == OLDER_NOVA else {}
    command = isolated(directory, *program, **{"PYTHONPATH": path, **threads, **variables})
    on_host = libvirtd.command(*command)
    return subprocess.run(on_host, capture_output=True, text=True, timeout=seconds, check=False)


def _settings(directory: Path, libvirtd: PrivateLibvirtd) -> Sections:
    instances = directory / "instances"
    instances.mkdir(exist_ok=True)
    return {
        "DEFAULT": {
            "host": libvirtd.name,
            "state_path": directory,
            "instances_path": instances,
            "compute_driver": "millpond.MillpondDriver",
            "transport_url": "fake:/",
        },
        "libvirt": {
            "connection_uri": libvirtd.uri,
            "virt_type": "qemu",
            "cpu_mode": "none",
            "images_type": "libvirt-storage",
        },
        "database": {"connection": f"sqlite:///{directory}/nova.sqlite"},
        "oslo_concurrency": {"lock_path": directory / "locks"},
        # What Nova's own part asks LVM for; there may be no sudo.
        "nova_sys_admin": {
            "helper_command": f"{python().with_name('privsep-helper')} "
            f"--config-file {directory / 'nova.conf'}"
        },
        "oslo_messaging_notifications": {"driver": "noop"},
    }
