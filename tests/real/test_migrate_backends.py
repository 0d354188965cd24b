"""What moves with a server: disks of every backend, and what people and other operations made of
them. Each moves whole, or is refused before anything is powered off."""

import hashlib
import subprocess

import libvirt
import pytest
from lxml import etree

from millpond.disks.backend import ImageFile
from millpond.model.formats import DiskFormat
from millpond.records.journal import StepMoment
from tests.real.test_host_volumes import device_of
from tests.real.test_kept_definition import CHANGES, INACTIVE, kept
from tests.real.test_migrate import check_only_on, create, images  # noqa: F401
from tests.real.test_migrate_daemons import wait_until_booted
from tests.support.glance_pages import ID
from tests.support.guests import build_micro_guest
from tests.support.killer import kill_at
from tests.support.linked import LinkingHosts, linked_host

ALL = ("--ephemeral", "16M", "--swap", "8M", "--config-drive")
STOP = ("--stop", "--timeout", "30")


def seen_by_guest(hosts, name, directory):
    """What each disk holds for its guest, whatever its format and layers."""
    host, server = hosts.deployment().find(name)
    found = {}
    for disk in server.disks:
        path, flat = directory / "disk.qcow2", directory / "disk.raw"
        host.disks.extract(disk, ImageFile(path=path, format=DiskFormat.QCOW2))
        words = ["qemu-img", "convert", "-f", "qcow2", "-O", "raw", path, flat]
        subprocess.run(words, check=True)
        with flat.open("rb") as file:
            found[disk.role] = hashlib.file_digest(file, "sha256").hexdigest()
        path.unlink()
    return found


def place_pools(hosts, is_local):
    own = {}
    for name in hosts.hosts:
        place = (hosts.directory if name in is_local else hosts.place) / name
        if name in is_local:
            place.mkdir(exist_ok=True, mode=0o755)
        bases = f"base_images_pool_path = {place}/bases"
        own[name] = f"disks_pool_path = {place}/disks\n{bases}"
    return own


def configure(hosts, backend, *, is_local=("alder", "birch")):
    """Hosts whose files can be opened here have their pools in directories of their own."""
    own = place_pools(hosts, is_local)
    images_type = f"images_type = {backend}\n" if backend != "ploop" else ""
    mapping = f"images_type_mapping = raw:{backend}, qcow2:{backend}"
    rest = f"[libvirt]\n{images_type}{mapping}"
    default = f"instances_path = {hosts.directory}/instances" if is_local else ""
    hosts.configure(own, default=default, rest=rest)


@pytest.mark.full
@pytest.mark.parametrize("files", ["local", "remote"])
@pytest.mark.parametrize("backend", ["qcow2", "raw", "ploop"])
def test_a_server_with_disks_of_all_kinds_moves_there_and_back(
    images,  # noqa: F811
    workdir,
    backend,
    files,
):
    if (backend, files) == ("ploop", "remote"):
        pytest.skip("refused: the next test")
    configure(images, backend, is_local=("alder", "birch") if files == "local" else ())
    create(images, "web", "raw", *ALL)
    wait_until_booted(images, "web")
    images.ok("server", "stop", "web", "--timeout", "30")
    images.ok("server", "disk", "add", "web", "--size", "64M")
    before = seen_by_guest(images, "web", workdir)
    assert len(before) == 5
    for host in ("birch", "alder"):
        images.ok("server", "migrate", "web", "--host", host)
        assert seen_by_guest(images, "web", workdir) == before
        check_only_on_by_records(images, "web", host)
    images.ok("server", "start", "web")
    wait_until_booted(images, "web", 2)
    images.ok("server", "migrate", "web", "--host", "birch", *STOP)
    wait_until_booted(images, "web", 3)


def check_only_on_by_records(hosts, name, host):
    server = hosts.deployment().server(name)
    assert (server.host, server.operation, server.leftovers) == (host, None, ())
    for other, there in hosts.deployment().hosts.items():
        pool = there.pools.ensure(server.disks[0].pool)
        pool.refresh()
        has = any(each.startswith(server.id) for each in pool.names())
        assert (has, name in there.domains.names()) == (other == host, other == host)
    assert hosts.taken_by() == {server.id}


@pytest.mark.full
def test_a_ploop_disk_is_refused_by_a_host_whose_files_are_remote(images):  # noqa: F811
    configure(images, "ploop", is_local=("alder",))
    create(images, "web", "raw")
    status, message = images.fails("server", "migrate", "web", "--host", "birch", *STOP)
    assert (status, "need the files of host 'birch' to be local" in message) == (6, True)
    assert images.json("server", "show", "web")["state"] == "running"


@pytest.mark.full
def test_a_rescued_server_moves_and_is_unrescued_there(images, workdir):  # noqa: F811
    rescuer = build_micro_guest(workdir / "rescuer.raw", marker="RESCUER")
    images.ok("image", "add", rescuer.path, "--name", "rescuer")
    create(images, "web", "raw")
    wait_until_booted(images, "web")
    images.ok("server", "rescue", "web", "--image", "rescuer", "--timeout", "30")
    images.ok("server", "migrate", "web", "--host", "birch", "--stop", "--force")
    check_only_on(images, "web", "birch")
    assert images.json("server", "show", "web")["rescued"]
    images.ok("server", "unrescue", "web", "--force")
    wait_until_booted(images, "web", 2)
    check_only_on(images, "web", "birch")


@pytest.mark.full
@pytest.mark.parametrize("backend", ["raw", "qcow2"])
def test_a_resize_is_reverted_after_a_move(images, workdir, backend):  # noqa: F811
    configure(images, backend)
    create(images, "web", "raw", "--no-start", "--disk", "2M")
    before = seen_by_guest(images, "web", workdir)["disk"]
    images.ok("server", "resize", "web", "--revertable", "--disk", "4M", "--vcpus", "2")
    images.ok("server", "start", "web")
    wait_until_booted(images, "web")
    images.ok("server", "migrate", "web", "--host", "birch", *STOP)
    images.ok("server", "stop", "web", "--force")
    images.ok("server", "resize", "web", "--revert")
    assert seen_by_guest(images, "web", workdir)["disk"] == before
    check_only_on_by_records(images, "web", "birch")
    images.ok("server", "start", "web")


def test_what_people_changed_in_the_domain_goes_along(images):  # noqa: F811
    """Devices of the host do not: they are named, and the server stays."""
    create(images, "web", "qcow2", "--no-start")
    with images.hosts["alder"].connect() as alder:
        domain = alder.lookupByName("web")
        root = etree.fromstring(domain.XMLDesc(INACTIVE))
        for change in CHANGES:
            change(root)
        usb = etree.SubElement(root.find("devices"), "hostdev", mode="subsystem", type="usb")
        source = etree.SubElement(usb, "source")
        etree.SubElement(source, "vendor", id="0x1234")
        etree.SubElement(source, "product", id="0xbeef")
        alder.defineXMLFlags(etree.tostring(root, encoding="unicode"), 0)
        status, message = images.fails("server", "migrate", "web", "--host", "birch")
        assert (status, "does not know: 1 hostdev" in message) == (5, True), message
        root.find("devices").remove(usb)
        alder.defineXMLFlags(etree.tostring(root, encoding="unicode"), 0)
        changed = kept(etree.fromstring(domain.XMLDesc(INACTIVE)))
    images.ok("server", "migrate", "web", "--host", "birch")
    images.ok("server", "start", "web")
    with images.hosts["birch"].connect() as birch:
        flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
        moved = kept(etree.fromstring(birch.lookupByName("web").XMLDesc(flags)))
    assert moved == changed
    check_only_on(images, "web", "birch")


def test_addresses_and_ports_of_one_that_moves_are_taken_at_both_ends(images):  # noqa: F811
    publish = ("--network", "user", "--publish", "127.0.0.1:18022:22")
    create(images, "web", "qcow2", "--no-start", *publish)
    kill_at(images, "migrate", "copy", StepMoment.END, "migrate", "web", "birch")
    words = ("server", "create", "other", "--image", "qcow2", "--memory", "16M", "--no-start")
    for host in ("alder", "birch"):
        status, message = images.fails(*words, *publish, "--host", host)
        assert (status, "port 18022 of the host is server 'web'" in message) == (2, True), message
    images.ok(*words, *publish, "--host", "cedar")
    images.run("doctor", "--repair")
    status, message = images.fails("server", "migrate", "web", "--host", "cedar")
    assert (status, "server 'other'" in message) == (6, True), message
    images.ok("server", "migrate", "web", "--host", "birch")


@pytest.mark.full
def test_the_overlay_of_a_linked_template_finds_it_linked_there(
    multi_host, micro_guest, workdir, monkeypatch
):
    """Only the overlay travels: the image is in a volume that either host reaches."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    (workdir / "volume").write_bytes(micro_guest.path.read_bytes())
    connection = {"driver_volume_type": "local", "device_path": str(workdir / "device")}
    with (
        device_of(workdir / "volume", workdir / "device"),
        linked_host(LinkingHosts(multi_host), micro_guest.path.read_bytes(), connection) as linked,
    ):
        create(multi_host, "web", ID)
        wait_until_booted(multi_host, "web")
        multi_host.ok("cache", "fetch", ID, "--host", "birch")
        assert len(linked.cinder.attachments) == 2
        multi_host.ok("cache", "prune", "--all-unused", "--host", "birch")
        assert len(linked.cinder.attachments) == 1  # alder's guest reads it
        told = multi_host.json("server", "migrate", "web", "--host", "birch", *STOP)
        assert told["disks"][0]["way"] == "copy"
        wait_until_booted(multi_host, "web", 2)
        server = multi_host.deployment().server("web")
        base = multi_host.directory / "birch/bases" / server.disks[0].template.volume
        assert (base.is_symlink(), server.disks[0].overlay) == (True, True)
        check_only_on_by_records(multi_host, "web", "birch")
        multi_host.ok("server", "delete", "web")
        for host in ("alder", "birch"):
            multi_host.ok("cache", "prune", "--all-unused", "--host", host)
        assert linked.cinder.attachments == {}
