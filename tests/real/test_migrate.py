"""A server that is off moves to another host: with all its bytes, or not at all."""

import hashlib
import os
import re
import threading

import pytest

from millpond.libvirt.pool import bytes_of
from millpond.records.journal import StepMoment
from millpond.servers import leftovers
from tests.real.test_kill import moments
from tests.support.killer import kill_at
from tests.support.millpond import converted
from tests.support.qemus import wait_until_booted, watching_qemus

FILTER = "[scheduler]\nfilter_hosts_by_image_type_support = true"
MEMORY = ("--memory", "16M")
BEFORE = ("claim", "template", "stop", "copy", "verify", "domain", "switch")
"""Killed there, the server stays where it is."""
KILLS = [
    pytest.param(step, moment, marks=pytest.mark.full, id=f"{step}-{moment}")
    for step, moment in moments("migrate")
]


@pytest.fixture
def images(multi_host, micro_guest, workdir):
    multi_host.ok("image", "add", micro_guest.path, "--name", "raw")
    multi_host.ok("image", "add", converted(micro_guest, "qcow2", workdir), "--name", "qcow2")
    return multi_host


def create(hosts, name, image, *words):
    hosts.ok("server", "create", name, "--image", image, *MEMORY, "--host", "alder", *words)
    return hosts.deployment().server(name)


def contents(hosts, name):
    """What its disks hold, by their roles, through the host that has it."""
    host, server = hosts.deployment().find(name)
    found = {}
    for disk in server.disks:
        pool = host.pools.ensure(disk.pool)
        held = b"".join(bytes_of(pool, disk.volume)).rstrip(b"\0")
        found[disk.role] = hashlib.sha256(held).hexdigest()
    return found


def check_only_on(hosts, name, host):
    server = hosts.deployment().server(name)
    assert server.host == host
    assert server.operation is None
    for other in hosts.hosts:
        volumes = [each for each in hosts.volumes(other) if each.startswith(server.id)]
        domains = hosts.deployment().hosts[other].domains.names()
        assert bool(volumes) == (other == host), (other, volumes)
        assert (name in domains) == (other == host)
    assert hosts.taken_by() == {each.id for each in hosts.deployment().records.all()}
    assert hosts.ok("doctor", "--placement").endswith("no problem\n")


@pytest.mark.parametrize("image", ["qcow2", "raw"])
def test_a_server_moves_with_all_its_disks_and_boots_there(images, image):
    server = create(images, "web", image, "--disk", "1G", "--no-start")
    images.ok("server", "disk", "add", "web", "--size", "1G")
    before = contents(images, "web")
    told = images.json("server", "migrate", "web", "--host", "birch")
    assert (told["host"], told["source"]) == ("birch", "alder")
    assert {each["role"] for each in told["disks"]} == set(before)
    assert told["moved"] <= told["bytes"] + 1024**2
    assert contents(images, "web") == before
    check_only_on(images, "web", "birch")
    images.ok("server", "start", "web")
    assert images.json("server", "show", "web")["state"] == "running"
    assert images.deployment().server("web").id == server.id


def test_one_that_runs_is_refused_or_stopped_and_started_again(images):
    create(images, "web", "qcow2")
    status, message = images.fails("server", "migrate", "web", "--host", "birch")
    assert (status, "add --stop" in message) == (5, True)
    assert images.where("web") == "alder"
    stop = ("--stop", "--timeout", "30")
    told = images.json("server", "migrate", "web", "--host", "birch", *stop)
    assert images.where("web") == "birch"
    assert 0 < told["off"] < 60
    assert images.json("server", "show", "web")["state"] == "running"
    assert re.search(r"Off +\d+\.\d{3} s", images.ok("server", "migrate", "web", *stop))


def test_only_the_overlay_travels_and_finds_its_base_at_another_path(images):
    """Of a host whose pools are elsewhere, with longer names."""
    own = f"base_images_pool_path = {images.place}/another-directory-for-templates\n"
    images.configure({"birch": f"{own}disks_pool_path = {images.place}/others"})
    create(images, "web", "qcow2", "--disk", "1G", "--no-start")
    before = images.deployment().server("web")
    told = images.json("server", "migrate", "web", "--host", "birch")
    assert told["moved"] <= 1.05 * told["bytes"] + 64 * 1024  # the head of a header is whole
    assert told["disks"][0]["size"] < 1024**2
    host, server = images.deployment().find("web")
    assert [each.overlay for each in server.disks] == [each.overlay for each in before.disks]
    volume = host.pools.ensure(server.disks[0].pool).get(server.disks[0].volume)
    base = host.pools.base.get(server.disks[0].template.volume)
    assert volume.backing_path == base.path != f"{images.place}/instances/_base/{base.name}"
    images.ok("server", "start", "web")
    images.ok("server", "stop", "web", "--force")
    images.ok("server", "migrate", "web", "--host", "alder")
    images.ok("server", "start", "web")
    images.ok("server", "delete", "web")
    assert [images.volumes(each) for each in images.hosts] == [[], [], []]


def test_a_disk_whose_image_is_gone_and_blank_disks_travel_whole(images):
    words = ("--no-start", "--ephemeral", "1G", "--swap", "64M", "--config-drive")
    create(images, "web", "qcow2", *words)
    deployment = images.deployment()
    deployment.catalogue.remove(deployment.images.get("qcow2"))
    told = images.json("server", "migrate", "web", "--host", "birch")
    ways = {each["role"]: each["way"] for each in told["disks"]}
    assert (ways["disk"], ways["disk.config"]) == ("whole", "copy")
    server = images.deployment().server("web")
    assert [each.overlay for each in server.disks] == [False] * len(server.disks)
    check_only_on(images, "web", "birch")
    images.ok("server", "start", "web")


def test_a_dry_run_says_what_would_travel_and_changes_nothing(images):
    create(images, "web", "qcow2", "--no-start")
    before = images.deployment().server("web")
    told = images.json("server", "migrate", "web", "--host", "birch", "--dry-run")
    (disk, *_) = told["disks"]
    assert (told["host"], disk["way"], bool(disk["template"])) == ("birch", "copy", True)
    assert told["bytes"] == sum(each["size"] for each in told["disks"]) > 0
    assert "birch" in images.ok("server", "migrate", "web", "--dry-run")
    explained = images.json("explain", "web", "--host", "birch")
    assert (explained["disks"], explained["host"]) == (told["disks"], "birch")
    assert images.fails("explain", "webb")[0] == 3
    assert images.deployment().server("web") == before
    check_only_on(images, "web", "alder")


def test_what_cannot_be_is_refused_and_nothing_has_changed(images):
    create(images, "web", "qcow2")
    images.configure({"birch": "image_type_exclude_list = qcow2"}, rest=FILTER)
    stop = ("--stop", "--timeout", "30")
    for words, status, said in (
        (("--host", "alder"), 2, "on host 'alder' already"),
        (("--host", "elm"), 3, "there is no host 'elm'"),
        (("--host", "birch"), 6, "lacks COMPUTE_IMAGE_TYPE_QCOW2"),
        (("--host", "birch", "--dry-run"), 6, "lacks COMPUTE_IMAGE_TYPE_QCOW2"),
    ):
        assert images.fails("server", "migrate", "web", *stop, *words)[0] == status
        assert said in images.fails("server", "migrate", "web", *stop, *words)[1]
    assert images.fails("server", "migrate", "nobody")[0] == 3
    assert images.json("server", "show", "web")["state"] == "running"
    check_only_on(images, "web", "alder")


def test_a_destination_without_room_or_network_is_refused_before_the_guest_is_stopped(images):
    create(images, "web", "raw", "--disk", "3G")
    words = ("--image", "raw", *MEMORY, "--disk", "3G", "--no-start", "--host", "birch")
    images.ok("server", "create", "full", *words)
    status, message = images.fails("server", "migrate", "web", "--stop", "--host", "birch")
    assert (status, "DISK_GB" in message) == (6, True)
    assert images.json("server", "show", "web")["state"] == "running"
    assert images.where("web") == "alder"


@pytest.mark.parametrize(("step", "moment"), KILLS)
def test_killed_anywhere_exactly_one_host_has_the_server_with_all_bytes(images, step, moment):
    create(images, "web", "qcow2", "--no-start")
    images.ok("server", "disk", "add", "web", "--size", "1G")
    before = contents(images, "web")
    kill_at(images, "migrate", step, moment, "migrate", "web", "birch")
    images.run("doctor", "--repair")
    check_only_on(images, "web", "alder" if step in BEFORE else "birch")
    assert contents(images, "web") == before
    images.ok("server", "start", "web")
    wait_until_booted(images, "web")


@pytest.mark.parametrize(("step", "moment"), KILLS)
def test_killed_anywhere_the_same_command_again_moves_it(images, step, moment):
    """One that ran runs again, with all that it wrote."""
    server = create(images, "web", "raw")
    with watching_qemus(server.id) as seen:
        wait_until_booted(images, "web")
        kill_at(images, "migrate", step, moment, "migrate", "web", "birch", "stop")
        images.ok("server", "migrate", "web", "--host", "birch", "--stop", "--timeout", "30")
        check_only_on(images, "web", "birch")
        assert images.json("server", "show", "web")["state"] == "running"
        wait_until_booted(images, "web", len(seen))


def test_deleted_in_the_middle_it_leaves_nothing_on_either_host(images):
    for step in ("copy", "remove"):
        create(images, "web", "qcow2", "--no-start")
        kill_at(images, "migrate", step, StepMoment.END, "migrate", "web", "birch")
        images.ok("server", "delete", "web")
        assert [images.volumes(each) for each in images.hosts] == [[], [], []]
        assert images.taken_by() == set()


@pytest.mark.parametrize(
    ("step", "moment", "dead", "left"),
    [("verify", StepMoment.END, "birch", "alder"), ("remove", StepMoment.BEGIN, "alder", "birch")],
)
def test_a_host_that_dies_keeps_nobody_from_the_server(
    images, host_daemons, step, moment, dead, left
):
    create(images, "web", "raw", "--no-start")
    before = contents(images, "web")
    kill_at(images, "migrate", step, moment, "migrate", "web", "birch")
    host_daemons[dead].stop()
    try:
        images.run("doctor", "--repair", "--host", left)
        server = images.deployment().server("web")
        assert (server.host, server.operation) == (left, None)
        assert contents(images, "web") == before
        images.ok("server", "start", "web")
    finally:
        host_daemons[dead].start()
    told = " ".join(images.run("doctor", "--host", dead).stdout.split())
    assert "a move left the domain of server 'web'" in told
    images.run("doctor", "--repair")
    check_only_on(images, "web", left)


@pytest.mark.full
@pytest.mark.parametrize("step", ["", "copy", "domain", "remove"])
def test_nothing_is_copied_or_removed_in_a_pool_that_both_hosts_share(
    sharing_hosts, micro_guest, step
):
    """Killed there, or not at all."""
    shared = sharing_hosts
    shared.ok("image", "add", micro_guest.path, "--name", "raw")
    shared.ok("host", "list", "--refresh")
    server = create(shared, "web", "raw", "--no-start")
    before = contents(shared, "web")
    if step:
        kill_at(shared, "migrate", step, StepMoment.END, "migrate", "web", "birch")
        shared.run("doctor", "--repair")
        assert contents(shared, "web") == before
        assert shared.where("web") == ("alder" if step in BEFORE else "birch")
    if shared.where("web") == "alder":
        told = shared.json("server", "migrate", "web", "--host", "birch")
        assert (told["moved"], {each["way"] for each in told["disks"]}) == (0, {"shared"})
    assert contents(shared, "web") == before
    assert "web" not in shared.deployment().hosts["alder"].domains.names()
    assert shared.taken_by() == {server.id}
    assert shared.ok("doctor", "--placement").endswith("no problem\n")
    shared.ok("server", "start", "web")
    shared.ok("server", "delete", "web")


@pytest.mark.full
def test_a_pool_that_is_shared_and_not_known_to_be_is_refused(sharing_hosts, micro_guest):
    shared = sharing_hosts
    shared.ok("image", "add", micro_guest.path, "--name", "raw")
    shared.ok("host", "list", "--refresh")
    create(shared, "web", "raw", "--no-start")
    before = contents(shared, "web")
    other = shared.directory / "link"
    other.symlink_to(shared.directory / "shared")
    own = {name: f"disks_pool_path = {shared.directory}/shared/disks" for name in shared.hosts}
    with shared.hosts["birch"].connect() as birch:
        pool = birch.storagePoolLookupByName("nova-disks-pool")
        pool.destroy()
        pool.undefine()
    shared.configure({**own, "birch": f"disks_pool_path = {other}/disks"})
    status, message = shared.fails("server", "migrate", "web", "--host", "birch")
    assert (status, "has volume" in message and "already" in message) == (6, True)
    assert contents(shared, "web") == before
    shared.ok("server", "delete", "web")


def test_the_disk_of_a_running_server_is_no_leftover_in_a_pool_that_came_to_be_shared(
    sharing_hosts, micro_guest
):
    """Its host and the other one never show it with the same time of change."""
    shared = sharing_hosts
    shared.ok("image", "add", micro_guest.path, "--name", "raw")
    create(shared, "web", "raw")
    deployment = shared.deployment()
    server = deployment.server("web")
    directory = shared.directory / "shared" / "disks"
    files = sorted(path.name for path in directory.iterdir())
    deployment.records.put(leftovers.note(server, "birch", server.disks))
    done = threading.Event()

    def write() -> None:
        while not done.wait(0.001):
            for name in files:
                os.utime(directory / name)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        shared.run("doctor", "--repair")
    finally:
        done.set()
        writer.join()
    assert sorted(path.name for path in directory.iterdir()) == files
    assert shared.deployment().server("web").leftovers == ()
    shared.ok("server", "delete", "web")
    assert not list(directory.iterdir())
