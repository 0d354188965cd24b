"""Twenty servers that Nova's own code has made, half of them running, leave its layout by each of
the ways: byte for byte, and nothing stays behind."""

import hashlib
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from millpond.model.sizes import KiB, MiB
from millpond.system import files
from tests.support.audit import started_processes
from tests.support.guests import MicroGuest
from tests.support.multi_host import MultiHost
from tests.support.openstack.environment import NOVA, reason_to_skip
from tests.support.openstack.nova_alone import DISKS, ComputeNode
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.timeout(1800), pytest.mark.full]

COUNT = 20
SECONDS = 120
COUNTERS = slice(1024, 2048)
"""Where the guest counts its boots and ticks: it writes nowhere else."""
RATIOS = "\n".join(f"{each}_allocation_ratio = 64" for each in ("cpu", "ram", "disk"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Legacy:
    """What Nova left, and Millpond has adopted."""

    pond: MultiHost
    node: ComputeNode
    names: Mapping[str, str]
    """By ids."""
    running: frozenset[str]

    def start_others(self) -> None:
        for id, name in self.names.items():
            if id not in self.running:
                self.pond.ok("server", "start", name)

    def stop(self) -> None:
        self.pond.ok("server", "stop", "--all", "--force")

    def start(self) -> None:
        self.pond.ok("server", "start", "--all")

    def each(self, *words: str) -> None:
        """server VERB NAME OPTION..."""
        verb, *options = words
        for name in self.names.values():
            self.pond.ok("server", verb, name, *options)


def reboot_and_start(legacy: Legacy) -> None:
    for id, name in legacy.names.items():
        words = ("reboot", "--hard") if id in legacy.running else ("start",)
        legacy.pond.ok("server", *words, name)


def resize(legacy: Legacy) -> None:
    legacy.stop()
    legacy.each("resize", "--memory", "80M")
    legacy.start()


def migrate(legacy: Legacy) -> None:
    legacy.stop()
    legacy.each("migrate", "--host", "birch")
    legacy.start()


def migrate_live(legacy: Legacy) -> None:
    for id, name in legacy.names.items():
        live = ["--live"] if id in legacy.running else []
        legacy.pond.ok("server", "migrate", name, "--host", "birch", *live)
    legacy.start_others()


def run(legacy: Legacy, *words: str) -> None:
    told = legacy.pond.json("transition", "run", "--all", *words)
    assert [(each["disks"], each["error"]) for each in told] == [(len(DISKS), "")] * COUNT
    legacy.start_others()


def run_off(legacy: Legacy) -> None:
    legacy.stop()
    run(legacy)
    for id in legacy.running:
        legacy.pond.ok("server", "start", legacy.names[id])


def run_live(legacy: Legacy) -> None:
    run(legacy, "--live")


def run_stop(legacy: Legacy) -> None:
    run(legacy, "--stop", "--force")


@pytest.fixture
def node(multi_host: MultiHost) -> ComputeNode:
    if reason := reason_to_skip():
        pytest.skip(reason)
    alder = multi_host.hosts["alder"]
    return ComputeNode(libvirtd=alder, directory=multi_host.directory, release=NOVA)


@pytest.fixture
def image(micro_guest: MicroGuest, workdir: Path) -> Path:
    """Full of what no guest writes."""
    path = workdir / "full.raw"
    start = micro_guest.path.read_bytes()[: 4 * KiB]
    path.write_bytes(start + os.urandom(MiB - len(start)))
    return path


@pytest.mark.parametrize("shared", [False, True], ids=["own pools", "shared pool"])
@pytest.mark.parametrize(
    "way",
    [reboot_and_start, resize, migrate, migrate_live, run_off, run_live, run_stop],
    ids=lambda each: each.__name__,
)
def test_all_leave_the_layout_byte_for_byte(
    multi_host: MultiHost,
    node: ComputeNode,
    image: Path,
    way: Callable[[Legacy], None],
    shared: bool,
) -> None:
    if shared and way not in (migrate, migrate_live):
        pytest.skip("no other host is concerned")
    legacy = _adopt(multi_host, node, image, shared=shared)
    before = {id: _contents(map(node.instances.joinpath, [id] * 4, DISKS)) for id in legacy.names}

    way(legacy)
    assert multi_host.json("transition", "status") == []
    assert {id: node.disks(id) for id in legacy.names} == {id: [] for id in legacy.names}
    live = legacy.running if way in (migrate_live, run_live) else frozenset()
    boots = {id: 1 if id in live else 2 for id in legacy.names}
    _await_boots(node, {id: number for id, number in boots.items() if id not in live})
    for id in live:
        ticks = node.console(id).count("TICK")
        wait_for(partial(_ticks_on, node, id, ticks), SECONDS)
    legacy.stop()
    assert {id: _contents(_volumes(multi_host, id)) for id in legacy.names} == before
    legacy.start()
    _await_boots(node, {id: number + 1 for id, number in boots.items()})
    assert "no problem" in (said := multi_host.run("doctor").stdout), said
    _see_that_the_cache_manager_knows(legacy)


def _adopt(pond: MultiHost, node: ComputeNode, image: Path, *, shared: bool) -> Legacy:
    names = [f"eel{number}" for number in range(COUNT)]
    halves = {"qcow2": names[: COUNT // 2], "raw": names[COUNT // 2 :]}
    made: dict[str, str] = {}
    for images_type, half in halves.items():
        made |= node.run_nova(images_type, "create", image, *half)
    ids = [made[each] for each in names]
    _await_boots(node, dict.fromkeys(ids, 1))
    with node.libvirtd.connect() as connection:
        for id in ids[::2]:
            connection.lookupByUUIDString(id).destroy()
    own = pond.place_locally(shared=shared)
    bases = f"base_images_pool_path = {node.instances}/_base"
    for each in ("alder", "birch") if shared else ("alder",):
        own[each] = re.sub("base_images_pool_path = .*", bases, own[each])
    pond.configure(own, default=f"instances_path = {node.instances}\n{RATIOS}")
    pond.ok("host", "list", "--refresh")
    assert len(pond.json("transition", "status", "--host", "alder")) == COUNT
    pond.ok("server", "adopt", "--all", "--yes", "--host", "alder")
    found = {each["id"]: each["name"] for each in pond.json("server", "list")}
    assert found == {id: name for name, id in made.items()}
    return Legacy(pond=pond, node=node, names=found, running=frozenset(ids[1::2]))


def _await_boots(node: ComputeNode, boots: Mapping[str, int]) -> None:
    for id, number in boots.items():
        wait_for(partial(_has_booted, node, id, number), SECONDS)


def _has_booted(node: ComputeNode, id: str, number: int) -> bool:
    return node.boots(id) == number


def _ticks_on(node: ComputeNode, id: str, ticks: int) -> bool:
    return node.console(id).count("TICK") > ticks


def _volumes(pond: MultiHost, id: str) -> Iterator[Path]:
    server = pond.deployment().server(id)
    host = pond.deployment().host_of(server)
    for role in DISKS:
        disk = server.get_disk(role)
        assert not disk.path
        yield Path(host.pools.ensure(disk.pool).path, disk.volume)


def _contents(paths: Iterator[Path]) -> list[str]:
    """What guests see on these disks, but for what they count."""
    return [_content(each) for each in paths]


def _content(path: Path) -> str:
    with path.open("rb") as file:
        format = "qcow2" if file.read(4) == b"QFI\xfb" else "raw"
    flat = path.parent / "flat"
    words = ["qemu-img", "convert", "-U", "-f", format, "-O", "raw", path, flat]
    subprocess.run(words, check=True)
    digest = hashlib.sha256(str(flat.stat().st_size).encode())
    with flat.open("rb") as file:
        for start, end in files.extents(file.fileno(), flat.stat().st_size):
            for at in range(start, end, 64 * KiB):
                piece = bytearray(os.pread(file.fileno(), min(64 * KiB, end - at), at))
                if at == 0:
                    piece[COUNTERS] = bytes(len(piece[COUNTERS]))
                if any(piece):
                    digest.update(str(at).encode() + piece.rstrip(b"\0"))
    flat.unlink()
    return digest.hexdigest()


def _see_that_the_cache_manager_knows(legacy: Legacy) -> None:
    """What disks are backed by; and it starts nothing to find that out (B21)."""
    pond = legacy.pond
    text = pond.config.read_text().replace("[libvirt]", "[libvirt]\nimages_type = libvirt-storage")
    pond.config.write_text(text)
    deployment = pond.deployment()
    servers = [deployment.server(each) for each in legacy.names]
    (where,) = {each.host for each in servers}
    host = deployment.hosts[where]
    bases = {disk.template.volume for each in servers for disk in each.disks if disk.template}
    with started_processes() as started:
        removed = host.cache_manager.prune(host.cache_rules.at_once())
    assert (started, bases & {*removed}) == ([], set())
    assert bases <= {*os.listdir(host.pools.base.path)}
