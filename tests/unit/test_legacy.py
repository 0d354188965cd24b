"""Disks in Nova's legacy layout: found by names and records, never by their bytes."""

import json
import os
import shutil
import struct
import subprocess
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond.disks.backend import DiskRequest
from millpond.errors import DamagedRecord, ToolFailed, Unsupported
from millpond.legacy import disk_info
from millpond.legacy.image_files import ImageCache
from millpond.legacy.layout import NovaLayout
from millpond.legacy.nova_domain import NovaDomainXml, objections, server_of
from millpond.legacy.storage import LegacyStorage
from millpond.libvirt.memory_pool import MemoryPool
from millpond.libvirt.pool import PoolType
from millpond.model.formats import Backend, DiskFormat
from millpond.model.layer import FileSource
from millpond.model.server import Content, Disk
from millpond.model.sizes import MiB
from millpond.model.volume import VolumeSpec
from millpond.records import codec
from millpond.servers.domain_xml import disk_xml as domain_disk
from millpond.system.qcow2 import read_header
from tests.support.nova_tree import BASE, IMAGE_ID, NovaServer, disk_xml, ploop_descriptor
from tests.unit.samples import server as our_server

pytestmark = pytest.mark.skipif(
    shutil.which("qemu-img") is None, reason="qemu-img is missing: apt-get install qemu-utils"
)


@pytest.fixture
def guest(tmp_path):
    path = tmp_path / "guest.raw"
    path.write_bytes(b"guest".ljust(MiB, b"\0"))
    return path


@pytest.fixture
def nova(tmp_path):
    return NovaServer(instances=tmp_path / "instances")


def layout(nova, **changes):
    (nova.instances / "disks").mkdir(exist_ok=True, parents=True)
    usual = NovaLayout(
        instances=nova.instances,
        cache=ImageCache(path=nova.instances / "_base", pool="bases"),
        usual=DiskFormat.QCOW2,
        pools=(nova.instances / "disks",),
    )
    return replace(usual, **changes)


def found(nova, **changes):
    server = layout(nova, **changes).find(nova.id)
    assert server
    return server


def only_disk(nova, **changes):
    (disk,) = found(nova, **changes).disks
    return disk


def obstacle(nova, **changes):
    (words,) = only_disk(nova, **changes).obstacles
    return words


# What is evidence


@pytest.mark.parametrize("name", ["disk", "disk.local", "disk.eph0", "disk.eph12", "disk.swap"])
def test_a_disk_image_in_the_instance_directory_is_legacy(nova, guest, name):
    nova.flat(guest, name)
    (server,) = layout(nova).servers()
    assert (server.id, server.layout, [each.role for each in server.disks]) == (
        nova.id,
        "raw",
        [name],
    )


def test_anything_else_in_it_is_no_evidence(nova, guest):
    nova.flat(guest, "disk.config")
    for name in ("console.log", "kernel", "ramdisk", "libvirt.xml", "disk.eph", "disk.tmp"):
        (nova.directory / name).write_bytes(b"1")
    assert layout(nova).servers() == []
    assert layout(nova).find(nova.id) is None


def test_a_config_drive_comes_along_once_there_is_evidence(nova, guest):
    nova.flat(guest, "disk.config")
    nova.overlay(guest)
    disks = {each.role: each for each in found(nova).disks}
    assert (disks["disk.config"].format, disks["disk.config"].content) == ("raw", Content.CONFIG)
    assert found(nova).layout == "qcow2"


def test_only_directories_named_by_a_uuid_are_servers(nova, guest):
    for name in ("_base", "disks", "locks", "not-a-server"):
        (nova.instances / name).mkdir(parents=True)
        shutil.copyfile(guest, nova.instances / name / "disk")
    assert layout(nova).servers() == []


# What format it has


def test_novas_record_states_the_format(nova, guest):
    nova.flat(guest)
    disk = only_disk(nova)
    assert (disk.layout, disk.format, disk.size, disk.base) == (Backend.RAW, "raw", MiB, None)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=2048), st.booleans())
def test_a_disk_on_record_as_raw_is_never_looked_into(tmp_path, content, claims):
    nova = NovaServer(instances=tmp_path / "instances")
    source = tmp_path / "source"
    source.write_bytes((b"QFI\xfb\0\0\0\3" if claims else b"") + content)
    disk = (nova.flat(source), only_disk(nova))[1]
    assert (disk.format, disk.size, disk.base) == ("raw", source.stat().st_size, None)
    assert disk.obstacles == ()


def test_without_a_record_it_is_what_images_type_says(nova, guest):
    nova.overlay(guest)
    (nova.directory / "disk.info").unlink()
    assert only_disk(nova).format is DiskFormat.QCOW2
    assert only_disk(nova, usual=DiskFormat.RAW).format is DiskFormat.RAW


def test_a_record_from_where_the_instances_were_before_still_holds(nova, guest):
    nova.flat(guest)
    moved = {f"/var/lib/nova/instances/{nova.id}/disk": "raw", "/other/server/disk": "qcow2"}
    (nova.directory / "disk.info").write_text(json.dumps(moved))
    assert only_disk(nova).format is DiskFormat.RAW


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "cannot be used"),
        ('["disk"]', "cannot be used"),
        ('{"/a/ID/disk": "raw", "/b/ID/disk": "qcow2"}', "two formats for disk"),
        ('{"/a/ID/disk": "vmdk"}', "on record as 'vmdk', which is not known here"),
    ],
)
def test_a_record_that_cannot_be_understood_stands_in_the_way(nova, guest, text, sentence):
    nova.flat(guest)
    (nova.directory / "disk.info").write_text(text.replace("ID", nova.id))
    assert sentence in obstacle(nova)


# What backs it


def test_what_is_in_the_way_of_several_disks_is_said_once(nova, guest):
    for name in ("disk", "disk.swap"):
        nova.flat(guest, name)
    (nova.directory / "disk.info").write_text("{")
    (obstacle,) = layout(nova).find(nova.id).obstacles
    assert obstacle.startswith("disk, disk.swap: the record ")


def test_an_overlay_stands_on_a_base_of_novas(nova, guest):
    nova.overlay(guest)
    disk = only_disk(nova)
    assert (disk.layout, disk.size) == (Backend.QCOW2, MiB)
    assert (disk.base.pool, disk.base.volume, disk.base.format) == ("bases", BASE, "raw")


@pytest.mark.parametrize("name", [BASE, f"{BASE}_20", "swap_512", "ephemeral_1_0706d66"])
def test_the_names_that_nova_gives_bases(nova, guest, name):
    nova.overlay(guest, base=name)
    assert only_disk(nova).base.volume == name


def test_instances_behind_a_link(nova, guest, tmp_path):
    nova.overlay(guest)
    (tmp_path / "link").symlink_to(nova.instances)
    cache = ImageCache(path=tmp_path / "link" / "_base", pool="bases")
    assert only_disk(nova, cache=cache).base.volume == BASE


@pytest.mark.parametrize(
    "backing",
    [
        "{instances}/secret",
        "{instances}/_base/notes.txt",
        "{instances}/_base/sub/{base}",
        "{instances}/{base}",
        "../_base/{base}",
        "{instances}/_base/../{base}",
        'json:{{"driver":"raw","file.filename":"{instances}/_base/{base}"}}',
        "nbd://localhost/{base}",
    ],
)
def test_a_backing_file_anywhere_else_is_refused(nova, guest, backing):
    for place in ("secret", BASE, "_base/notes.txt", f"_base/{BASE}", f"_base/sub/{BASE}"):
        (nova.instances / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(guest, nova.instances / place)
    name = backing.format(instances=nova.instances, base=BASE)
    disk = nova.qcow2("disk", "compat=1.1", "1M")
    _write_backing(disk, name.encode())
    assert "which is no base in" in obstacle(nova)
    assert only_disk(nova).base is None


def _write_backing(path, name):
    """As a hand would that has no qemu-img which tries the name."""
    with open(path, "r+b") as file:
        file.seek(8)
        file.write(struct.pack(">QI", 4096, len(name)))
        file.seek(4096)
        file.write(name)


def test_a_base_that_is_not_as_nova_made_it_is_refused(nova, guest, tmp_path):
    disk = nova.overlay(guest)
    base = nova.instances / "_base" / BASE
    base.unlink()
    assert "is missing" in obstacle(nova)
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", guest, base], check=True
    )
    rebase = ["qemu-img", "rebase", "-u", "-f", "qcow2", "-b", base, "-F"]
    subprocess.run([*rebase, "qcow2", disk], check=True)
    assert "needs another file itself" in obstacle(nova)
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", base, "1M"], check=True)
    assert only_disk(nova).base.format is DiskFormat.QCOW2
    subprocess.run([*rebase, "vmdk", disk], check=True)
    assert "its base is of format 'vmdk'" in obstacle(nova)


def test_a_qcow2_disk_that_needs_more_than_its_base_is_refused(nova, tmp_path):
    nova.qcow2("disk", f"data_file={tmp_path / 'data'}", "1M")
    assert "keeps its data in another file" in obstacle(nova)
    (nova.directory / "disk").write_bytes(b"no qcow2")
    assert "is not the qcow2 image that it should be" in obstacle(nova)


@given(st.binary(max_size=200))
def test_any_header_is_read_or_refused(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("header") / "disk"
    path.write_bytes(b"QFI\xfb" + content)
    try:
        header = read_header(path)
    except ToolFailed:
        return
    assert header.virtual_size >= 0


def test_a_ploop_disk_is_what_its_description_says(nova, guest):
    path = nova.ploop(guest)
    disk = only_disk(nova)
    assert (disk.layout, disk.format, disk.size) == (Backend.PLOOP, "ploop", MiB)
    (path / "DiskDescriptor.xml").write_text(ploop_descriptor(MiB, ("Plain", "root.hds")))
    assert only_disk(nova).format is DiskFormat.RAW


@pytest.mark.parametrize(
    "description",
    [
        "",
        "<Parallels_disk_image",
        "<Parallels_disk_image/>",
        ploop_descriptor(MiB, ("Compressed", "/etc/passwd")),
        ploop_descriptor(MiB, ("Compressed", "../disk2/root.hds")),
        ploop_descriptor(MiB, ("Strange", "root.hds")),
        ploop_descriptor(MiB, ("Compressed", "root.hds"), ("Compressed", "root.hds.{1}")),
        ploop_descriptor(MiB).replace("<Disk_size>2048", "<Disk_size>many"),
    ],
)
def test_another_description_of_a_ploop_disk_is_refused(nova, guest, description):
    path = nova.ploop(guest)
    (path / "DiskDescriptor.xml").write_text(description)
    assert only_disk(nova).obstacles


# In two places


def test_a_disk_in_two_places_is_a_conflict_unless_it_is_one_inode(nova, guest):
    disk = nova.flat(guest)
    volume = nova.instances / "disks" / f"{nova.id}_disk"
    volume.parent.mkdir()
    os.link(disk, volume)
    assert only_disk(nova).obstacles == ()
    volume.unlink()
    shutil.copyfile(disk, volume)
    assert obstacle(nova) == f"it is in two places: {volume} is there, too"


# Volumes that bear the name already


def pool_with(type_, *names):
    pool = MemoryPool("ours", type_=type_)
    for name in names:
        pool.create(VolumeSpec(name=name, format=DiskFormat.RAW, capacity=4 * MiB))
    return pool


def test_logical_volumes_of_novas_are_volumes_of_the_lvm_pool(nova, guest):
    names = (f"{nova.id}_disk", f"{nova.id}_disk.swap", f"{nova.id}_disk.data0", "root", "a_disk")
    volumes = {Backend.LVM: pool_with(PoolType.LOGICAL, *names)}
    nova.flat(guest, "disk.config")
    server = found(nova, volumes=volumes)
    assert server.layout == "lvm"
    assert [(each.role, each.volume) for each in server.disks] == [
        ("disk.config", ""),
        ("disk", f"{nova.id}_disk"),
        ("disk.swap", f"{nova.id}_disk.swap"),
    ]
    record = server.disks[1].record(target="vda", bus="virtio")
    assert (record.backend, record.pool, record.volume, record.path) == (
        Backend.LVM,
        "ours",
        f"{nova.id}_disk",
        "",
    )
    assert (record.format, record.size, record.template) == (DiskFormat.RAW, 4 * MiB, None)


def test_images_in_ceph_are_volumes_of_the_rbd_pool(nova):
    volumes = {Backend.RBD: pool_with(PoolType.RBD, f"{nova.id}_disk", f"{nova.id}_disk.config")}
    (server,) = layout(nova, volumes=volumes).servers()
    assert [(each.layout, each.pool) for each in server.disks] == [(Backend.RBD, "ours")] * 2


def test_volumes_of_servers_that_are_known_are_not_legacy(nova, guest):
    volumes = {Backend.LVM: pool_with(PoolType.LOGICAL, f"{nova.id}_disk")}
    assert layout(nova, volumes=volumes).servers(known=[nova.id]) == []
    nova.flat(guest)  # but a file in Nova's layout is
    (server,) = layout(nova, volumes=volumes).servers(known=[nova.id])
    assert [each.path for each in server.disks] == [str(nova.directory / "disk")]


def test_a_file_beside_a_logical_volume_is_a_conflict(nova, guest):
    nova.flat(guest)
    volumes = {Backend.LVM: pool_with(PoolType.LOGICAL, f"{nova.id}_disk")}
    assert all("two places" in str(each.obstacles) for each in found(nova, volumes=volumes).disks)


# The backend


@pytest.fixture
def storage(nova):
    return LegacyStorage(nova.instances / "_base")


def recorded(nova, role="disk"):
    (disk,) = [each for each in found(nova).disks if each.role == role]
    return disk.record(target="vda", bus="virtio")


def test_new_disks_are_never_made_in_the_legacy_layout(nova, guest, storage):
    nova.flat(guest)
    disk = recorded(nova)
    for attempt in (
        lambda: storage.plan(DiskRequest(server=nova.id, role="disk", size=MiB), None),
        lambda: storage.create(disk, None),
        lambda: storage.fill(disk, b""),
    ):
        with pytest.raises(Unsupported, match="deprecated"):
            attempt()


def test_the_chain_of_an_overlay_names_files(nova, guest, storage):
    nova.overlay(guest)
    top, base = storage.chain(recorded(nova))
    assert (top.source, top.format) == (FileSource(path=str(nova.directory / "disk")), "qcow2")
    assert base.source == FileSource(path=str(nova.instances / "_base" / BASE))
    assert base.format is DiskFormat.RAW


def test_deleting_takes_what_is_the_disks_and_nothing_else(nova, guest, storage):
    nova.overlay(guest)
    nova.flat(guest, "disk.eph0")
    (nova.directory / "notes").write_text("mine")
    disk = recorded(nova)
    for _ in range(2):  # the second time nothing is left to do
        storage.delete(disk)
    assert sorted(os.listdir(nova.directory)) == ["disk.eph0", "disk.info", "notes"]
    assert disk_info.read(nova.directory) == {"disk.eph0": "raw"}
    storage.delete(recorded(nova, "disk.eph0"))
    assert os.listdir(nova.directory) == ["notes"]
    assert os.listdir(nova.instances / "_base") == [BASE]


def legacy_disk(nova, **changes):
    usual = Disk(
        role="disk",
        backend=Backend.RAW,
        pool="",
        volume="",
        format=DiskFormat.RAW,
        size=MiB,
        target="vda",
        path=str(nova.directory / "disk"),
    )
    return replace(usual, **changes)


def test_deleting_a_ploop_disk_keeps_what_somebody_put_beside_it(nova, guest, storage):
    path = nova.ploop(guest)
    disk = recorded(nova)
    (path / "notes").write_text("mine")
    storage.delete(disk)
    assert os.listdir(path) == ["notes"]
    (path / "notes").unlink()
    storage.delete(disk)
    assert not nova.directory.exists()


def test_a_damaged_record_does_not_keep_a_disk_from_being_deleted(nova, guest, storage):
    nova.flat(guest)
    (nova.directory / "disk.info").write_text("{")
    storage.delete(legacy_disk(nova))
    assert os.listdir(nova.directory) == ["disk.info"]
    with pytest.raises(DamagedRecord):
        disk_info.read(nova.directory)


def test_a_ploop_disk_does_not_grow(nova, guest, storage):
    nova.ploop(guest)
    with pytest.raises(Unsupported, match="ploop"):
        # Asked before anything is begun, whether it runs or not.
        storage.grow_strategy(recorded(nova))


@pytest.mark.parametrize("kind", ["flat", "overlay"])
def test_others_grow_with_all_layers_stated(nova, guest, storage, kind):
    getattr(nova, kind)(guest)
    assert storage.grow_strategy(recorded(nova)).finish(3 * MiB) == 3 * MiB
    assert only_disk(nova).size == 3 * MiB


# Domains of Nova's


INTERFACE = (
    "<interface type='{type}'><mac address='fa:16:3e:00:00:01'/><source bridge='br0'/>{more}"
    "<model type='e1000'/></interface>"
)


def domain_of(nova, devices, **changes):
    text = nova.domain(devices)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return NovaDomainXml.from_xml(text)


def test_a_domain_of_novas_becomes_a_record(nova, guest):
    disk = nova.overlay(guest)
    drive = nova.flat(guest, "disk.config")
    domain = domain_of(
        nova,
        disk_xml(disk, "qcow2")
        + "<disk type='file' device='cdrom'><target dev='hdb' bus='ide'/></disk>"
        + disk_xml(drive, "raw", "hda", "ide", device="cdrom")
        + INTERFACE.format(type="bridge", more=""),
    )
    assert list(objections(found(nova), domain)) == []
    server = server_of(found(nova), domain, "local")
    assert (server.name, server.image.id, server.image.format) == (
        "instance-0000002a",
        IMAGE_ID,
        "qcow2",
    )
    assert (server.flavor.vcpus, server.flavor.memory) == (1, 32 * MiB)
    assert (server.hardware.disk_bus, server.hardware.vif_model) == ("virtio", "e1000")
    (network,) = server.networks
    assert (network.kind, network.source, network.mac) == ("bridge", "br0", "fa:16:3e:00:00:01")
    assert [(each.role, each.target, each.bus) for each in server.disks] == [
        ("disk", "vda", "virtio"),
        ("disk.config", "hda", "ide"),
    ]
    assert server.disks[0].overlay
    assert server.created == "2026-01-02T03:04:05+00:00"
    again = codec.decode_server(codec.encode_server(server), nova.directory)
    assert again == server


def test_a_domain_without_novas_metadata_has_no_image(nova, guest):
    text = nova.domain(disk_xml(nova.flat(guest), "raw"))
    start, end = text.index("<metadata>"), text.index("</metadata>")
    domain = NovaDomainXml.from_xml(text[:start] + text[end + len("</metadata>") :])
    server = server_of(found(nova), domain, "local")
    assert (server.image.id, server.image.name, server.image.format) == ("", "unknown", "raw")


@pytest.mark.parametrize(
    ("devices", "sentence"),
    [
        (INTERFACE.format(type="bridge", more="<virtualport type='openvswitch'/>"), "openvswitch"),
        (INTERFACE.format(type="ethernet", more=""), "of the kind 'ethernet'"),
        ("<disk type='network'><source protocol='rbd' name='volumes/volume-1'/>"
         "<target dev='vdb' bus='virtio'/></disk>", "vdb, volumes/volume-1, is not in"),
        ("<disk type='volume'><source pool='p' volume='v'/>"
         "<target dev='vdb' bus='virtio'/></disk>", "vdb, v, is not in"),
    ],
)  # fmt: skip
def test_what_a_record_cannot_hold_stands_in_the_way(nova, guest, devices, sentence):
    domain = domain_of(nova, disk_xml(nova.flat(guest), "raw") + devices)
    (words,) = objections(found(nova), domain)
    assert sentence in words


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("<domain type='qemu'>", "<domain type='vz'>", "type 'vz'"),
        ("<boot dev='hd'/>", "<kernel>/k</kernel>", "it boots from /k"),
        ("type='raw'", "type='qcow2'", "raw on record, but qcow2 in the domain"),
        ("bus='virtio'", "bus='xen'", "on the bus 'xen'"),
    ],
)
def test_another_machine_stands_in_the_way(nova, guest, old, new, sentence):
    domain = domain_of(nova, disk_xml(nova.flat(guest), "raw"), **{old: new})
    (words,) = objections(found(nova), domain)
    assert sentence in words


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<boot dev='hd'/>", "<loader type='pflash'>/c</loader>"),
        ("<os>", "<os firmware='efi'>"),
    ],
)
def test_uefi_is_taken_over(nova, guest, old, new):
    domain = domain_of(nova, disk_xml(nova.flat(guest), "raw"), **{old: new})
    assert list(objections(found(nova), domain)) == []
    assert server_of(found(nova), domain, "local").hardware.firmware == "uefi"


def test_a_disk_without_its_place_in_the_domain_stands_in_the_way(nova, guest):
    domain = domain_of(nova, disk_xml(nova.flat(guest), "raw"))
    nova.flat(guest, "disk.rescue")
    (words,) = objections(found(nova), domain)
    assert words == "disk.rescue: it is not attached to the domain"
    assert "there is no domain of this UUID here" in objections(found(nova), None)


# Records and domains of ours


def test_a_record_from_before_says_nothing_of_paths_and_buses(tmp_path):
    ours = our_server()
    before = json.loads(codec.encode_server(ours))
    for disk in before["disks"]:
        del disk["path"], disk["bus"]
    found = codec.decode_server(json.dumps(before).encode(), tmp_path)
    assert found == ours


@pytest.mark.parametrize(
    ("bus", "device"), [("virtio", "disk"), ("sata", "cdrom"), ("ide", "cdrom")]
)
def test_a_read_only_disk_is_a_cd_rom_where_the_bus_has_no_other(nova, storage, bus, device):
    disk = legacy_disk(nova, bus=bus, content=Content.CONFIG)
    xml = domain_disk(our_server(), disk, storage.chain(disk))
    assert (xml.bus, xml.device, xml.read_only) == (bus, device, True)
