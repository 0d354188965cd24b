"""Pools that several hosts share count once, and only if they were proven to be one (B32)."""

import hashlib

import pytest

from millpond.disks.backend import ImageFile
from millpond.libvirt.memory_pool import MemoryPool
from millpond.libvirt.sharing import sharers
from millpond.model.formats import DiskFormat
from millpond.model.sizes import MiB
from millpond.model.volume import VolumeSpec
from millpond.scheduling.inventory import merge_groups
from tests.support.multi_host import NAMES

POOL = "nova-disks-pool"


@pytest.fixture
def shared(sharing_hosts):
    return sharing_hosts


def pools(multi_host):
    listed = multi_host.json("host", "list", "--refresh")
    return {each["name"]: each["pools"][0] for each in listed}


def test_a_pool_is_shared_by_those_who_see_what_one_of_them_made(shared):
    found = pools(shared)
    assert found["alder"]["shared_with"] == ["birch"]
    assert found["birch"]["shared_with"] == ["alder"]
    assert found["cedar"]["shared_with"] == []
    assert not list((shared.directory / "shared" / "disks").iterdir())


def test_it_counts_once_in_placement(shared, micro_guest):
    shared.ok("image", "add", micro_guest.path, "--name", "raw")
    pools(shared)
    deployment = shared.deployment()
    providers = deployment.scheduler.reporter.providers()
    assert providers["alder"].pools == providers["birch"].pools
    assert providers["cedar"].pools[POOL] not in providers["alder"].all
    for host in ("alder", "birch"):
        words = ("--image", "raw", "--memory", "16M", "--disk", "2G", "--no-start")
        shared.ok("server", "create", f"on-{host}", *words, "--host", host)
    consumers = deployment.scheduler.placement.providers.consumers(providers["alder"].pools[POOL])
    assert sorted(each["DISK_GB"] for each in consumers.values()) == [2, 2]
    assert shared.ok("doctor", "--placement").endswith("no problem\n")
    shared.ok("server", "delete", "on-alder", "on-birch")


def test_what_servers_take_follows_when_somebody_comes_to_share_their_pool(shared, micro_guest):
    shared.ok("image", "add", micro_guest.path, "--name", "raw")
    own = dict.fromkeys(NAMES, f"disks_pool_path = {shared.directory}/shared/disks")
    shared.configure(own, enabled=("alder", "cedar"))
    words = ("--image", "raw", "--memory", "16M", "--host", "alder", "--no-start")
    shared.ok("server", "create", "web", *words)
    alone = shared.deployment().scheduler.reporter.providers()["alder"].pools[POOL]
    shared.configure(own)
    shared.ok("host", "list")
    scheduler = shared.deployment().scheduler
    together = scheduler.reporter.providers()["alder"].pools[POOL]
    assert together != alone
    assert len(scheduler.placement.providers.consumers(together)) == 1
    shared.ok("host", "list", "--refresh")
    assert scheduler.placement.providers.find(uuid=alone) == []
    assert shared.ok("doctor", "--placement").endswith("no problem\n")


def test_who_shared_a_pool_still_does_while_one_does_not_answer(shared):
    pools(shared)
    before = shared.deployment().scheduler.reporter.providers()
    shared.hosts["birch"].stop()
    try:
        shared.ok("host", "list", "--refresh")
        assert shared.deployment().scheduler.reporter.providers() == before
    finally:
        shared.hosts["birch"].start()


def test_hosts_with_pools_at_one_path_do_not_share_them_for_that(multi_host):
    assert all(each["shared_with"] == [] for each in pools(multi_host).values())


def test_what_a_crash_left_of_a_proof_is_swept_and_others_marks_stay() -> None:
    one = MemoryPool(POOL)
    ours, theirs = "millpond-shared-me-1", "millpond-shared-you-1"
    for name in (ours, theirs):
        one.create(VolumeSpec(name=name, format=DiskFormat.RAW, capacity=MiB))
    assert sharers({"alder": one, "birch": one, "cedar": MemoryPool(POOL)}, "me") == [
        frozenset({"alder", "birch"})
    ]
    assert [each.name for each in one.volumes()] == [theirs]


def test_a_template_that_one_host_uses_stays_in_the_cache_that_another_shares(
    multi_host, micro_guest
):
    bases = multi_host.directory / "bases"
    bases.mkdir(mode=0o755)
    multi_host.configure(dict.fromkeys(NAMES[:2], f"base_images_pool_path = {bases}/_base"))
    multi_host.ok("image", "add", micro_guest.path, "--name", "raw")
    words = ("--image", "raw", "--memory", "16M", "--host", "birch")
    multi_host.ok("server", "create", "web", *words)
    multi_host.ok("cache", "prune", "--all-unused")
    multi_host.ok("server", "reboot", "web", "--hard")
    multi_host.ok("server", "delete", "web")
    multi_host.ok("cache", "prune", "--all-unused")
    assert list((bases / "_base").iterdir()) == []


def test_groups_that_have_a_host_in_common_are_one() -> None:
    shared = {"a": {POOL: frozenset("AB")}, "c": {POOL: frozenset("BC")}, "d": {}}
    found = merge_groups(shared, {"a": "A", "b": "B", "c": "C", "d": "D"})
    assert found["a"] == found["b"] == found["c"] == {POOL: frozenset("ABC")}
    assert found["d"] == {}


@pytest.mark.parametrize("live", [False, True], ids=["off", "live"])
def test_disks_that_a_host_has_formatted_move_within_a_shared_pool(shared, micro_guest, live):
    """The templates of swap and ephemeral disks are not the other host's: they become whole."""
    shared.ok("image", "add", micro_guest.path, "--name", "guest")
    pools(shared)
    words = ("--image", "guest", "--memory", "32M", "--swap", "8M", "--ephemeral", "16M")
    where = ("--network", "none", "--host", "alder", "--no-start")
    shared.ok("server", "create", "web", *words, *where)
    before = {role: content(shared, role) for role in ("disk.swap", "disk.eph0")}
    way = ("--live",) if live else ()
    if live:
        shared.ok("server", "start", "web")
    for host, suffix in (("birch", ".rebuilt"), ("alder", ".rebuilt")):
        shared.ok("server", "migrate", "web", "--host", host, *way)
        server = shared.deployment().server("web")
        assert server.host == host
        volumes = {each.role: each.volume for each in server.disks}
        assert volumes["disk.swap"] == f"{server.id}_disk.swap{suffix}"
        assert volumes["disk"] == f"{server.id}_disk"
        found = {each.name for each in (shared.directory / "shared/disks").iterdir()}
        assert found == {*volumes.values()}
        assert shared.json("server", "show", "web")["state"] == ("running" if live else "stopped")
    shared.ok("server", "stop", "web", "--force")
    assert {role: content(shared, role) for role in before} == before
    shared.ok("server", "start", "web")
    assert "no problem" in shared.ok("doctor")
    assert shared.ok("doctor", "--placement").endswith("no problem\n")
    shared.ok("server", "delete", "web", "--yes")
    assert not list((shared.directory / "shared/disks").iterdir())


def content(hosts, role):
    """Of a disk that its guest does not use."""
    host, server = hosts.deployment().find("web")
    path = hosts.directory / "content.raw"
    host.disks.extract(server.get_disk(role), ImageFile(path=path, format=DiskFormat.RAW))
    return hashlib.sha256(path.read_bytes()).digest()
