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
from tests.tempest.answers import Answers
from tests.tempest.configuration import Offered, tempest_conf
from tests.tempest.selection import LEFT_OUT

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
    answers: Answers, directory: Path, patterns: Sequence[str], *, workers: int, seconds: float
) -> None:
    """Of a cloud with this driver, which is gone then, what was not answered before. The directory
    is a session's (tests/support/session.py). What becomes of the tests goes to the stream, as
    subunit, while they run: it stays whatever happens to the cloud."""
    with _cloud(answers.driver, directory) as cloud:
        workspace = _workspace(cloud, directory / "tempest")
        answers.list.write_text("\n".join(_list(workspace, patterns)))
        (workspace / "missing").write_text("\n".join(answers.missing()))
        _run(workspace, answers.stream, workers, seconds)
    answers.take()


def _list(workspace: Path, patterns: Sequence[str]) -> Iterator[str]:
    (workspace / "wanted").write_text("\n".join(patterns))
    (workspace / "left-out").write_text("\n".join(LEFT_OUT))
    lists = ("--include-list", "wanted", "--exclude-list", "left-out")
    done = subprocess.run(
        _tempest(workspace, "--list-tests", *lists),
        cwd=workspace,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return (line for line in done.stdout.splitlines() if line.startswith("tempest."))


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
    path = f"{tempest('tempest').parent}:/usr/bin:/bin"  # it starts stestr and Python by name
    return isolated(workspace, tempest("tempest"), "run", *words, PATH=path)


def _run(workspace: Path, stream: Path, workers: int, seconds: float) -> None:
    """As far as it comes in so many seconds."""
    with stream.open("wb") as output:
        process = subprocess.Popen(
            _tempest(workspace, "--subunit", "--concurrency", workers, "--load-list", "missing"),
            cwd=workspace,
            stdout=output,
            start_new_session=True,  # so that its workers end with it
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
