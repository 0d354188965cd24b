"""Servers whose disks are clones in a Ceph pool, next to others that are files."""

import json
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from lxml import etree

from millpond.disks.backend import DiskRequest, ImageFile
from millpond.model.formats import DiskFormat
from millpond.model.names import ServerId, template_name
from millpond.model.server import Content, TemplateRef
from millpond.model.sizes import MiB
from tests.ceph.conftest import rbd_options
from tests.support.millpond import Millpond, converted

HEADERS = 64 * 1024
"""What a clone may write: 54 bytes were measured, and the guest counts its boots on its disk."""


@pytest.fixture
def mapped(millpond: Millpond, ceph, rbd_pool, micro_guest, workdir) -> Millpond:
    configure(millpond, ceph, rbd_pool, "images_type_mapping = raw:raw, ploop:ploop, qcow2:rbd")
    millpond.ok("image", "add", micro_guest.path, "--name", "raw")
    millpond.ok("image", "add", converted(micro_guest, "qcow2", workdir), "--name", "qcow2")
    return millpond


def configure(millpond, ceph, rbd_pool, *lines):
    options = ("images_type = qcow2", *rbd_options(ceph, rbd_pool), *lines)
    millpond.configure("\n".join(options))


def create(millpond, name, image, *options):
    words = ("--image", image, "--memory", "32M", "--network", "none")
    return millpond.json("server", "create", name, *words, *options)


def images(ceph, rbd_pool):
    return set(json.loads(ceph.rbd("ls", rbd_pool.name, "--format", "json")))


def test_a_server_runs_on_a_clone_of_its_template(mapped, ceph, rbd_pool, micro_guest, connection):
    made = create(mapped, "a", "qcow2")
    assert micro_guest.marker in mapped.wait_for_console(made["id"], "READY")
    (disk, _) = made["disks"]
    assert (disk["backend"], disk["pool"], disk["format"]) == ("rbd", "nova-disks-pool-rbd", "raw")
    info = json.loads(ceph.rbd("info", f"{rbd_pool.name}/{disk['volume']}", "--format", "json"))
    assert info["parent"]["image"] == disk["template"]["volume"]
    xml = etree.fromstring(connection.lookupByName("a").XMLDesc())
    (found, _) = xml.findall("devices/disk")
    assert (found.get("type"), found.find("driver").get("type")) == ("network", "raw")
    assert found.find("source").get("name") == f"{rbd_pool.name}/{disk['volume']}"
    assert found.find("source/auth/secret").get("uuid") == rbd_pool.secret
    mapped.ok("server", "reboot", "a", "--hard")
    mapped.wait_for_console(made["id"], "BOOTS 0002")
    mapped.ok("server", "delete", "a")
    assert images(ceph, rbd_pool) == {disk["template"]["volume"]}
    mapped.ok("image", "remove", "qcow2")
    assert images(ceph, rbd_pool) == set()


def test_a_template_in_the_cluster_goes_with_the_one_on_the_host(mapped, ceph, rbd_pool):
    made = create(mapped, "a", "qcow2", "--no-start")
    template = made["disks"][0]["template"]["volume"]
    listed = mapped.json("cache", "list")
    assert [each["name"] for each in listed["ceph"]] == [template]
    assert [each["reason"] for each in listed["templates"]] == ["used by a"]
    assert mapped.json("cache", "prune", "--all-unused") == []
    mapped.ok("server", "delete", "a")
    (gone,) = mapped.json("cache", "prune", "--all-unused")
    assert gone["template"]["volume"] == template
    assert images(ceph, rbd_pool) == set()


def test_only_the_first_server_brings_the_image_into_the_cluster(mapped, ceph, micro_guest):
    """B19: every later one writes no image data."""
    create(mapped, "first", "qcow2", "--no-start")
    before = ceph.bytes_written()
    for name in ("second", "third"):
        create(mapped, name, "qcow2", "--no-start")
    assert ceph.bytes_written() - before < HEADERS


def test_what_was_fetched_ahead_of_need_is_in_the_cluster(mapped, ceph, rbd_pool):
    """The first server writes no image data either, and to fetch it again is no work."""
    mapped.ok("cache", "fetch", "raw")
    assert images(ceph, rbd_pool) == set()
    (made,) = mapped.json("cache", "fetch", "qcow2")
    assert images(ceph, rbd_pool) == {made["volume"]}
    assert mapped.json("explain", "qcow2")["hosts"][0]["template_exists"]
    before = ceph.bytes_written()
    mapped.ok("cache", "fetch", "qcow2")
    create(mapped, "first", "qcow2", "--no-start")
    assert ceph.bytes_written() - before < HEADERS
    mapped.ok("server", "delete", "first")
    assert len(mapped.json("cache", "prune", "--all-unused")) == 2
    assert images(ceph, rbd_pool) == set()


def test_a_disk_in_the_cluster_is_larger_than_its_image_and_grows(mapped, ceph, rbd_pool):
    made = create(mapped, "a", "qcow2", "--disk", "4M")
    mapped.wait_for_console(made["id"], "READY")
    volume = f"{rbd_pool.name}/{made['disks'][0]['volume']}"
    for mebibytes in (8, 16):
        mapped.ok("server", "resize", "a", "--disk", f"{mebibytes}M")
        size = mebibytes * MiB
        assert json.loads(ceph.rbd("info", volume, "--format", "json"))["size"] == size
        assert mapped.json("server", "show", "a")["disks"][0]["size"] == size
        mapped.ok("server", "stop", "a", "--force")
    code, message = mapped.fails("server", "resize", "a", "--disk", "1M")
    assert (code, "would be lost" in message) == (5, True)


def test_ephemeral_swap_and_data_disks_are_in_the_cluster(millpond, ceph, rbd_pool, micro_guest):
    configure(millpond, ceph, rbd_pool, "images_type = rbd")
    millpond.ok("image", "add", micro_guest.path, "--name", "raw")
    made = create(millpond, "a", "raw", "--ephemeral", "32M", "--swap", "16M")
    millpond.wait_for_console(made["id"], "READY")
    millpond.ok("server", "disk", "add", "a", "--size", "8M")
    assert {name for name in images(ceph, rbd_pool) if name.startswith(made["id"])} == {
        f"{made['id']}_{role}" for role in ("disk", "disk.eph0", "disk.swap", "disk.data0")
    }
    millpond.ok("server", "delete", "a")
    assert not any(name.startswith(made["id"]) for name in images(ceph, rbd_pool))


def test_a_cold_snapshot_of_a_disk_in_the_cluster_boots(mapped, micro_guest):
    made = create(mapped, "a", "qcow2")
    mapped.wait_for_console(made["id"], "READY")
    mapped.ok("server", "stop", "a", "--force")
    mapped.ok("server", "snapshot", "a", "copy")
    again = create(mapped, "b", "copy")
    mapped.wait_for_console(again["id"], "BOOTS 0002")


@pytest.mark.full
def test_a_cluster_that_does_not_answer_is_one_sentence_and_changes_nothing(
    mapped, ceph, rbd_pool
):
    create(mapped, "a", "qcow2", "--no-start")
    before = images(ceph, rbd_pool)
    ceph.stop()
    for words in (
        ("server", "create", "b", "--image", "qcow2", "--no-start"),
        ("server", "start", "a"),
        ("server", "resize", "a", "--disk", "8M"),
        ("server", "snapshot", "a", "copy"),
        ("server", "delete", "a"),
    ):
        code, message = mapped.fails(*words)
        assert code == 6, message
        assert "does not answer" in message
    ceph.start()
    assert images(ceph, rbd_pool) == before
    listed = mapped.json("server", "list")
    assert [(each["name"], each["state"]) for each in listed] == [("a", "stopped")]
    mapped.ok("server", "start", "a")


def test_a_pool_that_libvirt_left_inactive_is_started_when_it_is_needed(
    mapped, connection, rbd_pool
):
    """After a restart libvirt does not start RBD pools, even with the cluster up."""
    create(mapped, "a", "qcow2", "--no-start")
    connection.storagePoolLookupByName("nova-disks-pool-rbd").destroy()
    mapped.ok("server", "start", "a")


def test_a_pool_of_the_same_name_on_another_ceph_pool_is_refused(mapped, ceph, rbd_pool):
    create(mapped, "a", "qcow2", "--no-start")
    configure(mapped, ceph, rbd_pool, "images_rbd_pool = elsewhere", "images_type = rbd")
    code, message = mapped.fails("server", "create", "b", "--image", "qcow2")
    assert code == 6
    assert f"is at Ceph pool {rbd_pool.name}, not at Ceph pool elsewhere" in message


def test_an_image_of_somebody_else_is_never_taken_for_a_template(mapped, ceph, rbd_pool):
    """Without our mark it is not complete, and not ours to remove."""
    image = mapped.host().shared.catalogue.get("qcow2")
    name = template_name(image.id, image.format.content)
    ceph.rbd("create", "--size", "1M", f"{rbd_pool.name}/{name}")
    code, message = mapped.fails("server", "create", "a", "--image", "qcow2", "--memory", "32M")
    assert code == 4
    assert f"volume '{name}' already exists" in message
    assert images(ceph, rbd_pool) == {name}


def test_what_a_process_that_died_left_in_the_cluster_is_swept(
    mapped, ceph, rbd_pool, micro_guest
):
    host = mapped.host()
    image = host.shared.catalogue.get("qcow2")
    left = f"{template_name(image.id, image.format.content)}.{host.records.owner}.00000000"
    foreign = f"{template_name(image.id, image.format.content)}.another-host.00000000"
    for name in (left, foreign):
        ceph.rbd("create", "--size", "1M", f"{rbd_pool.name}/{name}")
    made = create(mapped, "a", "qcow2")
    assert micro_guest.marker in mapped.wait_for_console(made["id"], "READY")
    assert foreign in images(ceph, rbd_pool)
    assert left not in images(ceph, rbd_pool)


def test_two_hosts_bring_one_template(mapped, ceph, rbd_pool, workdir, libvirtd):
    """Each under a name of its own; the slower one uses what the other brought."""
    other = Millpond(directory=workdir / "other", uri=libvirtd.uri)
    other.directory.mkdir()
    pools = ("base_images_pool = other", "disks_pool = other-disks")
    configure(other, ceph, rbd_pool, *pools)
    hosts = [mapped.host(), other.host()]
    for host in hosts:  # two hosts have two libvirtds, and each its pool; here it is one
        host.pools.ensure("nova-disks-pool-rbd")
    with ThreadPoolExecutor(2) as threads:
        disks = list(threads.map(swap_disk, hosts))
    assert images(ceph, rbd_pool) == {"swap_16", *(disk.volume for disk in disks)}
    for disk in disks:
        info = ceph.rbd("info", f"{rbd_pool.name}/{disk.volume}", "--format", "json")
        assert json.loads(info)["parent"]["snapshot"] == "millpond"


def swap_disk(host):
    template = host.blanks.fetch(Content.SWAP, 16 * MiB)
    made_from = TemplateRef(pool=template.pool, volume=template.volume, format=template.format)
    request = DiskRequest(
        server=ServerId(str(uuid.uuid4())),
        role="disk.swap",
        content=Content.SWAP,
        size=16 * MiB,
    )
    return host.rbd_storage.create(host.rbd_storage.plan(request, made_from), template)


def test_many_at_once_bring_the_template_once(mapped, ceph, rbd_pool, micro_guest):
    names = [f"s{number}" for number in range(6)]
    before = ceph.bytes_written()
    with ThreadPoolExecutor(len(names)) as threads:
        list(threads.map(lambda name: create(mapped, name, "qcow2", "--no-start"), names))
    templates = {name for name in images(ceph, rbd_pool) if "_" not in name}
    assert len(templates) == 1
    assert ceph.bytes_written() - before < 2 * MiB


def test_explain_says_what_reaches_the_cluster(mapped):
    first = mapped.json("explain", "qcow2")["hosts"][0]
    assert (first["backend"], first["native"], first["template_format"]) == ("rbd", False, "raw")
    assert (first["template_exists"], first["written"]) == (False, MiB)
    create(mapped, "a", "qcow2", "--no-start")
    second = mapped.json("explain", "qcow2")["hosts"][0]
    assert (second["template_exists"], second["read"], second["written"]) == (True, 0, 0)


def test_doctor_and_the_list_of_pools_know_the_cluster(mapped, rbd_pool):
    create(mapped, "a", "qcow2", "--no-start")
    found = json.loads(mapped.run("doctor", "--json").stdout)
    about = [each for each in found if "nova-disks-pool-rbd" in each["what"]]
    assert [(each["level"], each["what"]) for each in about] == [
        ("ok", f"nova-disks-pool-rbd is active at Ceph pool {rbd_pool.name} with 2 volumes")
    ]
    (pool,) = [each for each in mapped.json("pool", "list") if "rbd" in each["name"]]
    assert pool["path"] == f"Ceph pool {rbd_pool.name}"
    shown = mapped.json("pool", "show", "nova-disks-pool-rbd")
    assert all(each["belongs_to"] for each in shown["volumes"])


def test_a_disk_by_itself_is_read_as_it_is_now(mapped, micro_guest, workdir):
    """As under Nova: nobody has frozen it before, and nothing is left frozen."""
    create(mapped, "a", "qcow2", "--no-start")
    host = mapped.host()
    disk = host.shared.server("a").get_disk("disk")
    for name in ("one", "two"):
        image = ImageFile(path=workdir / name, format=DiskFormat.RAW)
        host.imaging.extract(disk, image)
        assert (workdir / name).read_bytes() == micro_guest.path.read_bytes()
    mapped.ok("server", "delete", "a")


def test_a_running_server_on_rbd_and_files_is_cloned_and_imported(mapped, ceph, rbd_pool, workdir):
    """Its root disk is frozen by the cluster, its data disk by an overlay, while it is paused."""
    made = create(mapped, "a", "qcow2")
    template = made["disks"][0]["template"]["volume"]
    mapped.wait_for_console(made["id"], "TICK 0001")
    data = mapped.json("server", "disk", "add", "a", "--size", "4M")
    assert (made["disks"][0]["backend"], data["backend"]) == ("rbd", "qcow2")
    twin = mapped.json("server", "clone", "a", "twin")
    mapped.ok("server", "export", "a", workdir / "a.tar")
    again = mapped.json("server", "import", workdir / "a.tar", "--name", "again")
    assert mapped.json("server", "show", "a")["state"] == "running"
    for each in (twin, again):
        assert each["disks"][0]["backend"] == "rbd"
        mapped.wait_for_console(each["id"], "BOOTS 0002")
    snapshot = mapped.json("server", "snapshot", "a", "snap", "--all-disks")
    assert [each["name"] for each in snapshot["images"]] == ["snap", "snap-data0"]
    mapped.ok("server", "delete", "a", "twin", "again", "--yes")
    assert images(ceph, rbd_pool) == {template}
