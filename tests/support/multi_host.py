"""Several hosts, each with its pools on a file system that is mounted in its own namespace and
nowhere else, at the same path. A plugin (tests/conftest.py)."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from millpond.hosts.deployment import Deployment
from tests.support.libvirtd import PrivateLibvirtd, reason_to_skip
from tests.support.millpond import Millpond

NAMES = ("alder", "birch", "cedar")
_SIZE = "4g"
"""Of a file system in memory, of which nothing is taken that is not written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiHost(Millpond):
    """A state directory here, for hosts that are elsewhere."""

    hosts: Mapping[str, PrivateLibvirtd]
    place: Path

    def configure(
        self,
        hosts: Mapping[str, str] | None = None,
        default: str = "",
        rest: str = "",
        enabled: Sequence[str] = NAMES,
    ) -> None:
        """The configuration: what each host has of its own, what all have, other sections."""
        own = hosts or {}
        sections = [
            f"[DEFAULT]\nstate_path = {self.state}\nenabled_hosts = {', '.join(enabled)}",
            f"instances_path = {self.place}/instances\nreserved_host_memory_mb = 0\n{default}",
            "[libvirt]\nvirt_type = qemu",
            rest,
            *(
                f"[host:{name}]\nconnection_uri = {host.reached_by}\n{own.get(name, '')}"
                for name, host in self.hosts.items()
            ),
        ]
        self.config.write_text("\n".join(sections) + "\n")

    def place_locally(self, own: str = "", *, shared: bool = False) -> dict[str, str]:
        """What configure() takes, with pools in directories that can be opened here: one for each
        host, unless they share that of the disks."""
        made = {}
        for name in self.hosts:
            place = self.directory / name
            place.mkdir(mode=0o755)
            disks = self.directory / "shared" if shared else place / "disks"
            paths = f"base_images_pool_path = {place}/bases\ndisks_pool_path = {disks}"
            made[name] = f"{paths}\n{own}"
        return made

    def deployment(self) -> Deployment:
        return Deployment.load([self.config])

    def where(self, server: str) -> str:
        return self.deployment().server(server).host

    def taken_by(self) -> set[str]:
        """Consumers in Placement of all providers of all hosts."""
        scheduler = self.deployment().scheduler
        return {
            consumer
            for host in scheduler.reporter.providers().values()
            for uuid in host.all
            for consumer in scheduler.placement.providers.consumers(uuid)
        }

    def volumes(self, host: str) -> list[str]:
        """Disks that lie on the host, and UEFI variables."""
        named = ("-name", "*_disk*", "-o", "-name", "*_nvram")
        listed = self.hosts[host].run("find", str(self.place), *named).stdout
        return sorted(Path(each).name for each in listed.splitlines())


@pytest.fixture(scope="session")
def host_daemons(session_directory: Path) -> Iterator[Mapping[str, PrivateLibvirtd]]:
    if reason := reason_to_skip():
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(PrivateLibvirtd(session_directory / name, name=name))
            for name in NAMES
        }


@pytest.fixture
def multi_host(
    host_daemons: Mapping[str, PrivateLibvirtd], session_directory: Path
) -> Iterator[MultiHost]:
    with fresh_state(host_daemons, session_directory) as made:
        yield made


@contextlib.contextmanager
def fresh_state(
    hosts: Mapping[str, PrivateLibvirtd], session_directory: Path
) -> Iterator[MultiHost]:
    """A state directory, and a fresh file system for each host."""
    here = Path(tempfile.mkdtemp(prefix="multi-host-", dir=session_directory))
    here.chmod(0o755)
    place = here / "there"
    place.mkdir()
    for host in hosts.values():
        host.run("mount", "-t", "tmpfs", "-o", f"size={_SIZE},mode=0755", "multi-host", str(place))
    made = MultiHost(directory=here, uri="", hosts=hosts, place=place)
    made.configure(enabled=[*hosts])
    try:
        yield made
    finally:
        for host in hosts.values():
            host.clear()
            host.run("umount", "--lazy", str(place))
        shutil.rmtree(here)


@contextlib.contextmanager
def filled(hosts: MultiHost, name: str) -> Iterator[None]:
    """The file system of this host's pools has no byte left."""
    host, file = hosts.hosts[name], str(hosts.place / "filler")
    host.run("sh", "-c", f"cat /dev/zero >> {file} || true")
    try:
        yield
    finally:
        host.run("rm", file)


@pytest.fixture(scope="session")
def remote_daemons(session_directory: Path) -> Iterator[Mapping[str, PrivateLibvirtd]]:
    """Each with a network namespace of its own."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    number = os.getpid() % 250 + 1  # another run of the tests may be under way
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(
                PrivateLibvirtd(
                    session_directory / f"remote-{name}",
                    name=name,
                    network=(f"millpond{number}", f"10.77.{number}.{address}/24"),
                )
            )
            for address, name in enumerate(NAMES[:2], 3)
        }


@pytest.fixture
def remote_hosts(
    remote_daemons: Mapping[str, PrivateLibvirtd], session_directory: Path
) -> Iterator[MultiHost]:
    """Two that are reached by TCP alone."""
    with fresh_state(remote_daemons, session_directory) as made:
        yield made


@contextlib.contextmanager
def shared_there(path: Path) -> Iterator[None]:
    """One file system at this path for all hosts, which cannot be seen here."""
    path.mkdir(mode=0o755)
    for words in (
        ("-t", "tmpfs", "-o", "size=1g,mode=0755", "shared", str(path)),  # it comes to the hosts
        ("--make-private", str(path)),  # and what covers it does not
        ("-t", "tmpfs", "covers-it", str(path)),
    ):
        subprocess.run(["mount", *words], check=True)
    try:
        yield
    finally:
        for _ in range(2):
            subprocess.run(["umount", "--lazy", str(path)], check=True)
        path.rmdir()


@pytest.fixture
def sharing_hosts(multi_host: MultiHost) -> Iterator[MultiHost]:
    """alder and birch have one directory of disks; cedar has another one at the same path."""
    place = multi_host.directory / "shared"
    place.mkdir(mode=0o755)
    cedar = multi_host.hosts["cedar"]
    cedar.run("mount", "-t", "tmpfs", "-o", "size=1g,mode=0755", "cedar", str(place))
    multi_host.configure(dict.fromkeys(NAMES, f"disks_pool_path = {place}/disks"))
    yield multi_host
    for host in multi_host.hosts.values():
        host.clear()
    cedar.run("umount", "--lazy", str(place))
    shutil.rmtree(place)
