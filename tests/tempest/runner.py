"""One driver's cloud with two hosts, and Tempest's answer of it."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.guests import build_micro_guest
from tests.support.ini import ini
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.loopback import ADDRESS
from tests.support.openstack.cloud import Cloud, loopback_address
from tests.support.openstack.deployment import NOVA, Deployment
from tests.support.openstack.environment import tempest
from tests.support.openstack.nova import Sections, merged
from tests.support.openstack.service import isolated
from tests.tempest.configuration import Offered, tempest_conf
from tests.tempest.selection import LEFT_OUT

_STREAM_TO_JSON = Path(__file__).with_name("stream_to_json.py")

# Tempest asks for quotas; all other tests have Nova without them.
_CLOUD: Sections = {
    "scheduler": {"query_placement_for_image_type_support": True},
    "quota": {"driver": "nova.quota.DbQuotaDriver", "instances": -1, "cores": -1, "ram": -1},
}

# The guest does not listen when it is asked to shut down.
_IMPATIENT: Sections = {
    "DEFAULT": {"shutdown_timeout": 1},
    "libvirt": {"wait_soft_reboot_seconds": 2},
}

# Nova's own driver moves disks by ssh, unless the other host has its own address: then it takes
# the directory for the same one, which here it is.
_WITHOUT_SSH: Sections = {"DEFAULT": {"my_ip": ADDRESS}}


def ask(
    driver: str,
    directory: Path,
    patterns: Sequence[str],
    stream: Path,
    *,
    workers: int,
    seconds: float,
) -> None:
    """Of a cloud with this driver, which is gone then. The directory is a session's
    (tests/support/session.py). What became of the tests goes to the stream, as subunit, while they
    run: it stays whatever happens to the cloud. The names of all are in a list next to it."""
    with _cloud(driver, directory) as cloud:
        workspace = _workspace(cloud, directory / "tempest")
        (workspace / "wanted").write_text("\n".join(patterns))
        listed = subprocess.run(
            _tempest(workspace, "--list-tests"),
            cwd=workspace,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
        names = (line for line in listed.splitlines() if line.startswith("tempest."))
        stream.with_suffix(".list").write_text("\n".join(names))
        _run(workspace, stream, workers, seconds)


def readable(stream: bytes) -> str:
    """A line of JSON for each test of it; what had not ended has failed."""
    words = (tempest("python"), _STREAM_TO_JSON)
    return subprocess.run(words, input=stream, stdout=subprocess.PIPE, check=True).stdout.decode()


@contextlib.contextmanager
def _cloud(driver: str, directory: Path) -> Iterator[Cloud]:
    with contextlib.ExitStack() as stack:
        weir, dam = (stack.enter_context(_hypervisor(directory, name)) for name in ("weir", "dam"))
        cloud = stack.enter_context(Cloud(directory / "cloud", weir, _CLOUD))
        cloud.offer_volumes(dam)
        first = Deployment(cloud, driver)
        second = Deployment(cloud, driver, cloud.new_compute(dam))
        second.compute.directory.mkdir(exist_ok=True)
        second.instances = first.instances
        stack.callback(second.compute.kill)
        for each in (first, second):
            each.start(extra=merged(_IMPATIENT, _WITHOUT_SSH if driver == NOVA else {}))
        yield cloud


def _hypervisor(directory: Path, name: str) -> PrivateLibvirtd:
    """As that of tests/nova/conftest.py."""
    listens = f'migration_address = "{loopback_address(name)}"'
    return PrivateLibvirtd(directory / f"nova-{name}", name=name, qemu=(listens,))


def _workspace(cloud: Cloud, directory: Path) -> Path:
    directory.mkdir()
    workspace = directory / "workspace"
    subprocess.run(isolated(directory, tempest("tempest"), "init", workspace), check=True)
    conf = workspace / "etc/tempest.conf"
    conf.write_text(ini(tempest_conf(cloud.keystone, _offer(cloud, directory), directory)))
    (workspace / "left-out").write_text("\n".join(LEFT_OUT))
    return workspace


def _offer(cloud: Cloud, directory: Path) -> Offered:
    guest = build_micro_guest(directory / "micro.raw", marker="TEMPEST")
    overlay = directory / "micro.qcow2"
    words = ("qemu-img", "convert", "-f", "raw", "-O", "qcow2", guest.path, overlay)
    subprocess.run(words, check=True)
    return Offered(
        image=cloud.offer_image(overlay, "qcow2"),
        other_image=cloud.offer_image(guest.path, "raw"),
        flavor=cloud.offer_flavor(disk=1),
        larger_flavor=cloud.offer_flavor(disk=2),
    )


def _tempest(workspace: Path, *words: object) -> list[str]:
    command = (
        *(tempest("tempest"), "run", "--include-list", workspace / "wanted"),
        *("--exclude-list", workspace / "left-out", *words),
    )
    path = f"{tempest('tempest').parent}:/usr/bin:/bin"  # it starts stestr and Python by name
    return isolated(workspace, *command, PATH=path)


def _run(workspace: Path, stream: Path, workers: int, seconds: float) -> None:
    """As far as it comes in so many seconds."""
    with stream.open("wb") as output:
        process = subprocess.Popen(
            _tempest(workspace, "--subunit", "--concurrency", workers),
            cwd=workspace,
            stdout=output,
            start_new_session=True,  # so that its workers end with it
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
