"""Out of Nova's legacy layout: disks come into the pools, whole, whatever happens meanwhile."""

import hashlib
import json
import os
import re
import shutil
import subprocess

import libvirt
import pytest
from lxml import etree

from millpond.errors import Conflict, LibvirtFailed, NoSpace
from millpond.hosts.deployment import Deployment
from millpond.model.sizes import KiB, MiB
from millpond.records.journal import StepMoment
from millpond.servers import power, transition
from millpond.servers.transition import TransitRequest
from tests.real.test_legacy import (
    SECONDS,
    OnLibvirt,
    adopt,
    boots,
    flat,
    instances,  # noqa: F401
    ploop,
    qcow2,
)
from tests.support.audit import started_processes
from tests.support.killer import kill_at
from tests.support.loopfs import fill
from tests.support.millpond import Millpond
from tests.support.nova_tree import BASE, NovaServer, disk_xml
from tests.support.waiting import wait_for

LAYOUTS = [flat, qcow2, ploop]
BEFORE = ("claim", "template", "copy", "verify")
"""The steps of a live migration in which the guest is still at the source."""


@pytest.fixture
def nova(instances):  # noqa: F811
    return NovaServer(instances=instances)


def adopted(millpond, connection, nova, guest, layout):
    server = OnLibvirt(nova, connection, layout(nova, guest))
    adopt(millpond, nova)
    return server


def content(path, format="raw"):
    """What a guest sees, as a digest."""
    names = {"ploop": "parallels"}
    words = ["qemu-img", "convert", "-f", names.get(format, format), "-O", "raw", path]
    target = path.parent / "content.raw"
    subprocess.run([*words, target], check=True)
    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    target.unlink()
    return digest


def image_of(nova, layout):
    disk = nova.directory / "disk"
    return disk / "root.hds" if layout is ploop else disk


FORMATS = {flat: "raw", qcow2: "qcow2", ploop: "ploop"}


def sources(connection, nova, *, defined=False):
    flags = libvirt.VIR_DOMAIN_XML_INACTIVE if defined else 0
    xml = etree.fromstring(connection.lookupByUUIDString(nova.id).XMLDesc(flags))
    return {
        each.find("target").get("dev"): dict(each.find("source").attrib)
        for each in xml.findall("devices/disk")
    }


def assert_that_it_is_in_the_pool(millpond, connection, nova, *roles):
    server = millpond.server("web")
    assert server.operation is None
    for role in roles:
        disk = server.get_disk(role)
        assert (disk.path, disk.pool, disk.volume) == ("", "nova-disks-pool", f"{nova.id}_{role}")
        assert (millpond.disks / disk.volume).is_file()
        found = sources(connection, nova, defined=True)[disk.target]
        assert (found["pool"], found["volume"]) == (disk.pool, disk.volume)
    left = sorted(os.listdir(nova.directory)) if nova.directory.exists() else []
    assert left in ([], ["console.log"])


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda each: each.__name__)
def test_a_server_that_is_off_moves_by_a_rename(
    millpond,
    connection,
    micro_guest,
    nova,
    layout,
):
    adopted(millpond, connection, nova, micro_guest, layout)
    path = image_of(nova, layout)
    before, inode = content(path, FORMATS[layout]), path.stat().st_ino
    told = millpond.json("transition", "run", "web", "--dry-run")
    assert [(each["disks"], each["copied"], each["error"]) for each in told] == [(1, 0, "")]
    assert path.exists()

    assert "moved web" in millpond.ok("transition", "run", "--all")
    assert_that_it_is_in_the_pool(millpond, connection, nova, "disk")
    volume = millpond.disks / f"{nova.id}_disk"
    assert volume.stat().st_ino == inode
    assert content(volume, FORMATS[layout]) == before
    assert millpond.json("transition", "status") == []
    assert "no server has disks" in millpond.ok("transition", "run", "--all")
    millpond.ok("server", "start", "web")
    wait_for(lambda: boots(nova.console())[-1:] == [1], SECONDS)
    assert "no problem" in (told := millpond.run("doctor").stdout), told
    if layout is qcow2:
        template = millpond.host().template_store.find(BASE)
        assert template.prepared == "adoption"
    millpond.ok("server", "delete", "web", "--yes")
    assert os.listdir(millpond.disks) == []


def every_disk(nova, guest):
    """Root, ephemeral, swap and config drive, as Nova gives them."""
    blank = nova.instances / "blank"
    blank.write_bytes(bytes(MiB))
    disks = (
        disk_xml(nova.overlay(guest.path), "qcow2"),
        disk_xml(nova.overlay(blank, "disk.eph0", base="ephemeral_1_0706d66"), "qcow2", "vdb"),
        disk_xml(nova.flat(blank, "disk.swap"), "raw", "vdc"),
        disk_xml(nova.flat(blank, "disk.config"), "raw", "sda", "sata", device="cdrom"),
    )
    blank.unlink()
    return "".join(disks) + "<controller type='sata'/>"


ROLES = ("disk", "disk.eph0", "disk.swap", "disk.config")


def last_tick(nova):
    """0 before the first one: each QEMU that takes the log empties it."""
    return int(re.findall(r"TICK ([0-9A-F]{4})\s", "TICK 0000\n" + nova.console())[-1], 16)


def wait_for_ticks(nova, more=2):
    wait_for(lambda: last_tick(nova), SECONDS)
    end = last_tick(nova) + more
    wait_for(lambda: last_tick(nova) >= end, SECONDS)


def assert_gapless(nova):
    """Of its last boot: each number comes once, and none is left out."""
    told = nova.console().rpartition("READY")[2]
    ticks = [int(each, 16) for each in re.findall(r"TICK ([0-9A-F]{4})\s", told)]
    assert ticks == list(range(ticks[0], ticks[0] + len(ticks)))


def test_a_server_that_runs_moves_without_its_guest_noticing(
    millpond, connection, micro_guest, nova
):
    server = OnLibvirt(nova, connection, every_disk(nova, micro_guest)).boot()
    adopt(millpond, nova)
    process = server.domain.ID()
    wait_for(lambda: "TICK" in nova.console(), SECONDS)
    code, message = millpond.fails("transition", "run", "web")
    assert (code, "add --live, or --stop" in message) == (5, True)

    (told,) = millpond.json("transition", "run", "web", "--live")
    assert (told["disks"], told["error"], 0 < told["pause"] < 5) == (4, "", True)
    wait_for_ticks(nova)
    assert server.domain.ID() == process
    assert_gapless(nova)
    assert_that_it_is_in_the_pool(millpond, connection, nova, *ROLES)
    running = sources(connection, nova)
    for target in ("vda", "vdb", "vdc"):
        assert running[target]["file"].startswith(str(millpond.disks))
    assert "no problem" in (told := millpond.run("doctor").stdout), told

    tick = last_tick(nova)
    millpond.ok("server", "snapshot", "web", "live")  # other verbs know such a domain
    millpond.ok("server", "reboot", "web", "--hard")
    wait_for(lambda: boots(nova.console())[-1:] == [2], SECONDS)
    assert last_tick(nova) >= tick
    assert sources(connection, nova)["vda"]["volume"] == f"{nova.id}_disk"
    millpond.ok("server", "delete", "web", "--yes")
    assert os.listdir(millpond.disks) == []


@pytest.mark.parametrize(
    "words",
    [("start", "web"), ("reboot", "web", "--hard"), ("resize", "web", "--disk", "2M")],
    ids=lambda each: each[0],
)
def test_it_moves_before_it_is_started_rebooted_or_resized(
    millpond, connection, micro_guest, nova, words
):
    server = OnLibvirt(nova, connection, every_disk(nova, micro_guest))
    if words[0] == "reboot":
        server.boot()
    adopt(millpond, nova)
    millpond.ok("server", *words)
    assert_that_it_is_in_the_pool(millpond, connection, nova, *ROLES)
    if words[0] == "resize":
        assert millpond.server("web").get_disk().size == 2 * MiB
        millpond.ok("server", "start", "web")
    expected = 2 if words[0] == "reboot" else 1
    wait_for(lambda: boots(nova.console())[-1:] == [expected], SECONDS)


def test_what_stands_in_the_way_keeps_nobody_from_starting_it(
    millpond, connection, micro_guest, nova
):
    adopted(millpond, connection, nova, micro_guest, flat)
    other = nova.instances / "another-name"
    os.link(nova.directory / "disk", other)
    done = millpond.run("server", "start", "web")
    assert (done.returncode, "stays in Nova's legacy layout" in done.stderr) == (0, True)
    assert "2 names (hard links)" in done.stderr
    assert (nova.directory / "disk").exists()
    wait_for(lambda: boots(nova.console())[-1:] == [1], SECONDS)


@pytest.mark.parametrize("verb", ["rebuild", "rescue"])
def test_it_moves_before_its_root_disk_is_replaced(millpond, connection, micro_guest, nova, verb):
    adopted(millpond, connection, nova, micro_guest, flat)
    millpond.ok("image", "add", micro_guest.path, "--name", "other")
    millpond.ok(
        "server", verb, "web", "--image", "other", *(["--yes"] if verb == "rebuild" else [])
    )
    disk = millpond.server("web").get_disk()
    assert (disk.path, (millpond.disks / disk.volume).is_file()) == ("", True)
    assert not (nova.directory / "disk").exists()


@pytest.fixture
def elsewhere(millpond, make_filesystem):
    """Pools on a file system of their own."""
    mounted = make_filesystem("ext4")
    millpond.configure(f"disks_pool_path = {mounted.path}/disks")
    return mounted.path / "disks"


@pytest.mark.parametrize("layout", [flat, qcow2], ids=lambda each: each.__name__)
def test_across_file_systems_it_is_copied_and_verified(
    millpond, connection, micro_guest, nova, elsewhere, layout
):
    adopted(millpond, connection, nova, micro_guest, layout)
    path = nova.directory / "disk"
    before, taken = content(path, FORMATS[layout]), path.stat().st_blocks * 512
    (told,) = millpond.json("transition", "run", "web")
    assert told["copied"] == taken
    assert not path.exists()
    volume = elsewhere / f"{nova.id}_disk"
    assert content(volume, FORMATS[layout]) == before
    millpond.ok("server", "start", "web")
    wait_for(lambda: boots(nova.console())[-1:] == [1], SECONDS)


def tree(directory):
    return {
        str(path.relative_to(directory)): (path.lstat().st_ino, path.lstat().st_size)
        for path in directory.rglob("*")
        if path.name not in ("_base.millpond",) and "_base.millpond" not in path.parts
    }


def test_what_cannot_be_is_refused_and_nothing_has_changed(
    millpond, connection, micro_guest, nova
):
    adopted(millpond, connection, nova, micro_guest, qcow2)
    millpond.make_pools()
    disk, base = nova.directory / "disk", nova.instances / "_base" / BASE
    volume = millpond.disks / f"{nova.id}_disk"
    record = millpond.server("web")

    def refused(status, said):
        before = tree(nova.instances)
        code, message = millpond.fails("transition", "run", "web")
        assert (code, said in message) == (status, True), message
        assert tree(nova.instances) == before
        assert millpond.server("web") == record

    shutil.copyfile(disk, volume)
    refused(4, "already exists in pool 'nova-disks-pool'")
    volume.unlink()
    shutil.move(base, base.with_name("away"))
    refused(5, f"{base} is missing")
    shutil.move(base.with_name("away"), base)
    os.link(disk, disk.with_name("second"))
    refused(5, "it has 2 names")
    disk.with_name("second").unlink()
    shutil.move(disk, disk.with_name("away"))
    refused(5, "is missing")
    disk.symlink_to(disk.with_name("away"))
    refused(5, f"{disk} is a symbolic link")
    disk.unlink()
    shutil.move(disk.with_name("away"), disk)
    for path in (base, nova.directory):
        away = shutil.move(path, path.with_name("away"))
        path.symlink_to(away)
        refused(5, f"{path} is a symbolic link")
        path.unlink()
        shutil.move(away, path)
    for status, said, *words in (
        (2, "no server is named", "run"),
        (2, "--live and --stop exclude each other", "run", "web", "--live", "--stop"),
        (3, "there is no server 'nosuch'", "run", "nosuch"),
    ):
        code, message = millpond.fails("transition", *words)
        assert (code, said in message) == (status, True), message
    foreign = nova.directory / "notes.txt"
    foreign.write_text("of the operator")
    millpond.ok("transition", "run", "web")
    assert os.listdir(nova.directory) == ["notes.txt"]  # what is not ours stays


def test_a_pool_without_space_for_a_copy_is_refused(
    millpond, connection, micro_guest, nova, elsewhere
):
    adopted(millpond, connection, nova, micro_guest, flat)
    disk = nova.directory / "disk"
    free = os.statvfs(elsewhere.parent)
    with disk.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize + MiB)
    code, message = millpond.fails("transition", "run", "web")
    assert (code, "no space left in" in message) == (6, True), message
    assert not (elsewhere / f"{nova.id}_disk").exists()


def meanwhile(millpond, verb, step, moment, act):
    """The host, on which something else happens at this moment of an operation."""

    def watch(*where):
        if where == (verb, step, moment):
            act()

    return Deployment.load([millpond.config], watch).host()


def assert_that_nothing_has_moved(millpond, nova, elsewhere, record):
    assert millpond.server("web") == record
    assert {*os.listdir(nova.directory)} - {"console.log"} == {*ROLES, "disk.info"}
    assert os.listdir(elsewhere) == []


def test_a_pool_that_fills_up_while_a_disk_is_copied_loses_nothing(
    millpond, connection, micro_guest, nova, elsewhere
):
    OnLibvirt(nova, connection, every_disk(nova, micro_guest))
    adopt(millpond, nova)
    record = millpond.server("web")
    before = {each: (nova.directory / each).read_bytes() for each in ROLES}
    filler = elsewhere.parent / "filler"
    host = meanwhile(millpond, "transition", "copy", StepMoment.BEGIN, lambda: fill(filler))
    with pytest.raises(NoSpace):
        transition.transit(host, record, TransitRequest())
    assert_that_nothing_has_moved(millpond, nova, elsewhere, record)
    filler.unlink()
    power.start(host, record)  # and a server starts all the same
    assert_that_nothing_has_moved(millpond, nova, elsewhere, millpond.server("web"))
    filler.unlink()
    wait_for(lambda: boots(nova.console())[-1:] == [1], SECONDS)
    power.reboot(host, millpond.server("web"), patience=0)
    assert_that_nothing_has_moved(millpond, nova, elsewhere, millpond.server("web"))
    filler.unlink()
    wait_for(lambda: boots(nova.console())[-1:] == [2], SECONDS)
    assert {each: (nova.directory / each).read_bytes() for each in ROLES[1:]} == {
        each: before[each] for each in ROLES[1:]
    }
    millpond.ok("transition", "run", "web", "--stop", "--force")
    assert sorted(os.listdir(elsewhere)) == sorted(f"{nova.id}_{each}" for each in ROLES)


def test_a_pool_that_fills_up_while_its_guest_runs_disturbs_nobody(
    millpond, connection, micro_guest, nova, elsewhere
):
    server = OnLibvirt(nova, connection, every_disk(nova, micro_guest)).boot()
    adopt(millpond, nova)
    record, process = millpond.server("web"), server.domain.ID()
    filler = elsewhere.parent / "filler"
    little = 32 * KiB  # for libvirt's labels, and less than QEMU needs
    host = meanwhile(
        millpond, "live transition", "mirror", StepMoment.BEGIN, lambda: fill(filler, little)
    )
    with pytest.raises(NoSpace):
        transition.transit(host, record, TransitRequest(live=True))
    assert_that_nothing_has_moved(millpond, nova, elsewhere, record)
    wait_for_ticks(nova)
    assert_gapless(nova)
    filler.unlink()
    millpond.ok("transition", "run", "web", "--live")
    wait_for_ticks(nova)
    assert_gapless(nova)
    assert server.domain.ID() == process


def test_no_disk_is_used_when_the_copy_of_another_has_broken_off(
    millpond, connection, micro_guest, nova, elsewhere
):
    """As QEMU ends it when it can write no more."""
    server = OnLibvirt(nova, connection, every_disk(nova, micro_guest)).boot()
    adopt(millpond, nova)
    record = millpond.server("web")
    host = meanwhile(
        millpond,
        *("live transition", "pause", StepMoment.END),
        lambda: server.domain.blockJobAbort("vdc", 0),
    )
    with pytest.raises(LibvirtFailed, match="the copy broke off"):
        transition.transit(host, record, TransitRequest(live=True))
    assert_that_nothing_has_moved(millpond, nova, elsewhere, record)
    assert sources(connection, nova)["vda"]["file"] == str(nova.directory / "disk")
    wait_for_ticks(nova)
    assert_gapless(nova)


def test_a_file_that_somebody_has_open_is_not_copied(
    millpond, connection, micro_guest, nova, elsewhere
):
    adopted(millpond, connection, nova, micro_guest, flat)
    disk = nova.directory / "disk"
    with disk.open("r+b"):
        code, message = millpond.fails("transition", "run", "web")
        assert (code, f"{disk} is open in another process" in message) == (4, True), message
        assert os.listdir(elsewhere) == []
    opened = []
    host = meanwhile(
        millpond,
        *("transition", "verify", StepMoment.END),
        lambda: opened.append(disk.open("r+b")),
    )
    with pytest.raises(Conflict, match="is open in another process"):
        transition.transit(host, millpond.server("web"), TransitRequest())
    assert (os.listdir(elsewhere), disk.exists()) == ([], True)
    opened[0].close()
    millpond.ok("transition", "run", "web")


def test_the_directory_that_is_another_one_for_libvirt_is_named(
    millpond, connection, micro_guest, nova
):
    """A pool below /dev, which every private libvirtd has for itself."""
    adopted(millpond, connection, nova, micro_guest, flat)
    place = f"/dev/{millpond.directory.name}"
    millpond.configure(f"disks_pool = hidden\ndisks_pool_path = {place}")
    for words in (("run", "web"), ("status", "--host", "local")):
        code, message = millpond.fails("transition", *words)
        assert (code, f"{place} cannot be opened here" in message) == (5, True), message


def test_one_that_was_interrupted_is_in_two_places_and_nothing_is_in_its_way(
    millpond, connection, micro_guest, nova, elsewhere
):
    OnLibvirt(nova, connection, every_disk(nova, micro_guest))
    adopt(millpond, nova)
    kill_at(millpond, "transition", "copy", StepMoment.END, "transit", "web")
    assert len(os.listdir(elsewhere)) == len(ROLES)
    (found,) = millpond.json("transition", "status")
    assert (found["in_the_way"], found["interrupted"]) == ([], True)
    assert "'millpond transition run web' completes that" in millpond.ok("transition", "status")
    (told,) = millpond.json("transition", "run", "--all")
    assert (told["disks"], told["error"]) == (len(ROLES), "")
    assert millpond.json("transition", "status") == []


def test_a_kernel_and_a_ramdisk_come_along(millpond, connection, micro_guest, nova):
    devices = disk_xml(nova.flat(micro_guest.path), "raw")
    for name in ("kernel", "ramdisk"):
        (nova.directory / name).write_bytes(name.encode())
    boots_kernel = (
        f"<kernel>{nova.directory}/kernel</kernel><initrd>{nova.directory}/ramdisk</initrd>"
        "<cmdline>root=/dev/vda console=ttyS0</cmdline>"
    )
    xml = nova.domain(devices).replace("<boot dev='hd'/>", boots_kernel)
    connection.defineXML(xml)
    made = adopt(millpond, nova)
    assert made["boot"]["command_line"] == "root=/dev/vda console=ttyS0"
    millpond.ok("transition", "run", "web")
    os_ = etree.fromstring(connection.lookupByUUIDString(nova.id).XMLDesc(0)).find("os")
    for name, tag in (("kernel", "kernel"), ("ramdisk", "initrd")):
        path = millpond.disks / f"{nova.id}_{name}"
        assert (os_.findtext(tag), path.read_bytes()) == (str(path), name.encode())
    assert os_.findtext("cmdline") == "root=/dev/vda console=ttyS0"
    assert not nova.directory.exists()


def test_all_servers_of_a_compute_node_at_once(millpond, connection, micro_guest, instances):  # noqa: F811
    novas = [NovaServer(instances=instances) for _ in range(6)]
    for number, each in enumerate(novas):
        layout = (flat, qcow2)[number % 2]
        devices = layout(each, micro_guest)
        OnLibvirt(each, connection, devices, name=f"web{number}", domain=f"instance-{number}")
    torn = NovaServer(instances=instances)
    torn.flat(micro_guest.path)  # it has no domain
    done = millpond.run("server", "list")
    assert "7 servers with disks in Nova's legacy layout" in done.stderr
    assert millpond.fails("server", "adopt")[0] == 2
    for words in (("run", "--all"), ("run", "--all", "--dry-run"), ("revert", novas[0].id)):
        code, said = millpond.fails("transition", *words)
        assert (code, "and not adopted" in said, "adopt --all" in said) == (4, True, True), said
    told = millpond.run("server", "adopt", "--all", "--yes")
    assert (told.returncode, told.stdout.count("adopted web")) == (4, 6)
    assert f"server {torn.id} cannot be adopted" in told.stderr
    for each in novas[:3]:
        connection.lookupByUUIDString(each.id).create()
    told = millpond.run("transition", "run", "--all", "--parallel", "4")
    assert (told.returncode, told.stdout.count("moved web")) == (5, 3)
    assert told.stderr.count("stays in Nova's legacy layout") == 3
    told = millpond.run("transition", "run", "--all", "--live")
    assert (told.returncode, told.stdout.count("moved web")) == (4, 3)
    assert f"server {torn.id} is Nova's and not adopted" in told.stderr
    assert "web0" in (said := millpond.ok("transition", "run", "web0")), said
    assert "has no disks in Nova's legacy layout" in said
    assert [each["id"] for each in millpond.json("transition", "status")] == [torn.id]
    assert sorted(os.listdir(millpond.disks)) == sorted(f"{each.id}_disk" for each in novas)
    millpond.configure("images_type = libvirt-storage")
    code, message = millpond.fails("cache", "prune")
    assert (code, torn.id in message) == (6, True)
    shutil.rmtree(torn.directory)
    host = millpond.host()
    with started_processes() as started:  # B21
        assert host.cache_manager.prune(host.cache_rules.at_once()) == []
    assert (started, BASE in os.listdir(instances / "_base")) == ([], True)


def test_given_back_it_is_as_nova_had_it(millpond, connection, micro_guest, nova):
    OnLibvirt(nova, connection, every_disk(nova, micro_guest))
    before = {role: (nova.directory / role).stat().st_ino for role in ROLES}
    info = json.loads((nova.directory / "disk.info").read_text())
    adopt(millpond, nova)
    code, message = millpond.fails("transition", "revert", "web")
    assert (code, "is in its layout already" in message) == (5, True)
    millpond.ok("server", "start", "web")
    wait_for(lambda: boots(nova.console())[-1:] == [1], SECONDS)
    code, message = millpond.fails("transition", "revert", "web")
    assert (code, "this needs it to be stopped" in message) == (4, True)
    millpond.ok("server", "disk", "add", "web", "--size", "1M")
    millpond.ok("server", "stop", "web", "--force")
    code, message = millpond.fails("transition", "revert", "web")
    assert (code, "would not find disk.data0" in message) == (5, True)
    millpond.ok("server", "disk", "remove", "web", "disk.data0", "--yes")

    assert "gave web" in millpond.ok("transition", "revert", "web")
    assert {role: (nova.directory / role).stat().st_ino for role in ROLES} == before
    assert json.loads((nova.directory / "disk.info").read_text()) == info
    assert millpond.json("server", "list") == []
    assert os.listdir(millpond.disks) == []
    domain = connection.lookupByUUIDString(nova.id)
    assert "millpond" not in domain.XMLDesc(0).split("<devices>")[0]
    assert sources(connection, nova)["vda"] == {"file": str(nova.directory / "disk")}
    (found,) = millpond.json("transition", "status")
    assert (found["adopted"], found["in_the_way"]) == (False, [])
    domain.create()
    wait_for(lambda: boots(nova.console())[-1:] == [2], SECONDS)


def test_given_back_it_is_of_the_user_that_nova_runs_as(
    millpond, connection, micro_guest, nova, elsewhere
):
    OnLibvirt(nova, connection, every_disk(nova, micro_guest))
    user = 64321
    for each in (nova.instances, nova.directory, *nova.directory.iterdir()):
        os.chown(each, user, user)
    adopt(millpond, nova)
    millpond.ok("transition", "run", "web")
    millpond.ok("server", "start", "web")
    millpond.ok("server", "stop", "web", "--force")
    millpond.ok("transition", "revert", "web")

    def as_nova(*words):
        subprocess.run(words, check=True, user=user, group=user, extra_groups=[])

    for role in ROLES:
        as_nova("qemu-img", "info", nova.directory / role)
        assert (nova.directory / role).stat().st_mode & 0o777 == 0o644
    as_nova("touch", nova.directory / "disk.info", nova.directory / "libvirt.xml")


OFF = ("prepare", "stop", "copy", "verify", "move", "domain", "remove", "start")
LIVE = ("prepare", "volumes", "mirror", "pause", "pivot", "domain", "resume", "remove")
ALWAYS = {("move", StepMoment.END), ("pivot", StepMoment.END), ("remove", StepMoment.BEGIN)}
"""In every run; the others in the long one."""


def moments(names):
    return [
        pytest.param(
            *(step, moment),
            id=f"{step}-{moment}",
            marks=[] if (step, moment) in ALWAYS else [pytest.mark.full],
        )
        for step in names
        for moment in StepMoment
    ]


@pytest.mark.parametrize(("step", "moment"), moments(OFF))
@pytest.mark.parametrize(
    "place", ["one file system", pytest.param("another", marks=pytest.mark.full)]
)
def test_killed_anywhere_the_same_command_again_completes_it(
    millpond, connection, micro_guest, nova, request, step, moment, place
):
    """A server that runs, and is stopped for it."""
    if place == "another":
        request.getfixturevalue("elsewhere")
    elif step in ("copy", "verify"):
        pytest.skip("nothing is copied")
    OnLibvirt(nova, connection, every_disk(nova, micro_guest)).boot()
    adopt(millpond, nova)
    kill_at(millpond, "transition", step, moment, "transit", "web")
    assert_that_one_whole_copy_exists(millpond, nova)
    millpond.ok("transition", "run", "web", "--stop", "--force")
    server = millpond.server("web")
    assert (server.operation, [each.path for each in server.disks]) == (None, [""] * 4)
    wait_for(lambda: nova.console().count("READY") >= 1, SECONDS)
    before = boots(nova.console())
    millpond.ok("server", "reboot", "web", "--hard")
    wait_for(lambda: boots(nova.console())[-1:] > before[-1:], SECONDS)
    assert boots(nova.console()) == sorted(set(boots(nova.console())))
    assert "no problem" in (told := millpond.run("doctor").stdout), told


@pytest.mark.parametrize(
    ("step", "moment"), moments(each for each in OFF if each not in ("stop", "start"))
)
@pytest.mark.parametrize(
    "place", [pytest.param("one file system", marks=pytest.mark.full), "another"]
)
def test_what_was_not_synced_when_the_power_went_is_not_missed(
    millpond, connection, micro_guest, make_filesystem, step, moment, place
):
    if place == "one file system" and step in ("copy", "verify"):
        pytest.skip("nothing is copied")
    filesystems = [make_filesystem("ext4"), make_filesystem("ext4")]
    state, pools = (each.path for each in filesystems)
    pond = Millpond(directory=state / "work", uri=millpond.uri)
    pond.directory.mkdir(mode=0o755)
    pond.configure(f"disks_pool_path = {pools}/disks" if place == "another" else "")
    nova = NovaServer(instances=pond.state / "instances")
    adopted(pond, connection, nova, micro_guest, qcow2)
    before = content(nova.directory / "disk", "qcow2")
    for each in filesystems:
        subprocess.run(["sync", "--file-system", each.path], check=True)
    kill_at(pond, "transition", step, moment, "transit", "web")
    for each in filesystems:
        each.lose_power()
    pond.ok("transition", "run", "web")
    server = pond.server("web")
    assert (server.operation, [each.path for each in server.disks]) == (None, [""])
    (volume,) = (pools if place == "another" else state).rglob(f"{nova.id}_disk")
    assert content(volume, "qcow2") == before
    pond.ok("server", "start", "web")
    wait_for(lambda: boots(nova.console())[-1:] == [1], SECONDS)
    assert "no problem" in (told := pond.run("doctor").stdout), told
    pond.ok("server", "delete", "web", "--yes")


def assert_that_one_whole_copy_exists(millpond, nova):
    for role in ROLES:
        old = nova.directory / role
        new = next(millpond.directory.rglob(f"{nova.id}_{role}"), None)
        sizes = [each.stat().st_size for each in (old, new) if each and each.exists()]
        assert max(sizes) >= 192 * 1024  # of an empty qcow2 image


@pytest.mark.parametrize(("step", "moment"), moments(LIVE))
def test_killed_anywhere_a_server_that_runs_goes_on(
    millpond, connection, micro_guest, nova, step, moment
):
    server = OnLibvirt(nova, connection, every_disk(nova, micro_guest)).boot()
    adopt(millpond, nova)
    wait_for(lambda: "TICK" in nova.console(), SECONDS)
    kill_at(millpond, "live transition", step, moment, "transit live", "web")
    assert_that_one_whole_copy_exists(millpond, nova)
    millpond.ok("doctor", "--repair")
    assert millpond.server("web").operation is None
    wait_for_ticks(nova)
    assert_gapless(nova)
    millpond.ok("transition", "run", "web", "--live")
    assert_that_it_is_in_the_pool(millpond, connection, nova, *ROLES)
    assert server.domain.isActive()
    tick = last_tick(nova)
    millpond.ok("server", "reboot", "web", "--hard")
    wait_for(lambda: boots(nova.console())[-1:] == [2], SECONDS)
    assert last_tick(nova) >= tick
    assert "no problem" in (told := millpond.run("doctor").stdout), told


@pytest.mark.parametrize("layout", [flat, qcow2], ids=lambda each: each.__name__)
def test_it_moves_before_it_is_migrated(multi_host, micro_guest, layout):
    """Between hosts whose files are local; its instance directory is one of alder's."""
    instances = multi_host.directory / "instances"  # noqa: F811
    own = multi_host.place_locally()
    bases = f"base_images_pool_path = {instances}/_base"
    own["alder"] = re.sub("base_images_pool_path = .*", bases, own["alder"])
    multi_host.configure(own, default=f"instances_path = {instances}")
    nova = NovaServer(instances=instances)
    connection = libvirt.open(multi_host.hosts["alder"].uri)
    connection.defineXML(nova.domain(layout(nova, micro_guest)))
    multi_host.ok("host", "list", "--refresh")
    multi_host.ok("server", "adopt", nova.id, "--yes", "--host", "alder")
    code, message = multi_host.fails("server", "migrate", "web", "--host", "nosuch")
    assert (code, (nova.directory / "disk").exists()) == (3, True), message
    words = ("server", "migrate", "web", "--host", "birch")
    before = tree(instances)
    planned = multi_host.json(*words, "--dry-run")
    assert tree(instances) == before
    told = multi_host.json(*words)
    assert told["disks"] == planned["disks"]
    assert multi_host.where("web") == "birch"
    assert not (nova.directory / "disk").exists()
    assert (multi_host.directory / "birch/disks" / f"{nova.id}_disk").is_file()
    multi_host.ok("server", "start", "web")
    wait_for(lambda: boots(nova.console())[-1:] == [1], SECONDS)


@pytest.mark.parametrize("shared", [True, False], ids=["linked", "mirrored"])
@pytest.mark.parametrize("layout", [flat, qcow2], ids=lambda each: each.__name__)
def test_it_moves_as_it_is_migrated_while_it_runs(multi_host, busy_guest, layout, shared):
    """In a pool that both hosts share it gets another name, else QEMU copies it there."""
    nova, hosts = _between_hosts(multi_host, busy_guest, layout, shared=shared)
    multi_host.ok("image", "add", busy_guest.path, "--name", "busy")
    inode = (nova.directory / "disk").stat().st_ino
    wait_for(lambda: "TICK" in nova.console(), SECONDS)
    tick = last_tick(nova)
    words = ("server", "migrate", "web", "--live", "--host", "birch")
    planned = multi_host.json(*words, "--dry-run")
    told = multi_host.json(*words)
    assert told["disks"] == planned["disks"]
    assert (told["host"], multi_host.where("web")) == ("birch", "birch")
    wait_for_ticks(nova)
    assert last_tick(nova) > tick
    assert hosts["alder"].listAllDomains() == []
    assert not (nova.directory / "disk").exists()
    place = "shared" if shared else "birch/disks"
    volume = multi_host.directory / place / f"{nova.id}_disk"
    assert (volume.stat().st_ino == inode) == shared
    disk = multi_host.deployment().server("web").get_disk()
    assert (volume.stat().st_nlink, disk.path, disk.volume) == (1, "", volume.name)
    found = sources(hosts["birch"], nova, defined=True)["vda"]
    assert found["volume"] == f"{nova.id}_disk"
    tick = last_tick(nova)
    multi_host.ok("server", "reboot", "web", "--hard")
    wait_for(lambda: boots(nova.console())[-1:] == [2], SECONDS)
    wait_for(lambda: last_tick(nova) > tick, SECONDS)
    assert "no problem" in (said := multi_host.run("doctor").stdout), said


MIGRATE = (*BEFORE, "migrate", "switch", "domain", "remove", "release")


@pytest.mark.parametrize(("step", "moment"), moments(MIGRATE))
@pytest.mark.parametrize(
    "shared",
    [pytest.param(True, id="linked"), pytest.param(False, id="mirrored", marks=pytest.mark.full)],
)
def test_killed_as_it_is_migrated_one_whole_disk_is_there(
    multi_host, busy_guest, step, moment, shared
):
    nova, _ = _between_hosts(multi_host, busy_guest, flat, shared=shared)
    wait_for(lambda: "TICK" in nova.console(), SECONDS)
    old = nova.directory / "disk"
    inode = old.stat().st_ino
    kill_at(multi_host, "live migrate", step, moment, "live", "web", "birch")
    multi_host.ok("doctor", "--repair")
    stays = step in BEFORE or (step, moment) == ("migrate", StepMoment.BEGIN)
    place = multi_host.directory / ("shared" if shared else "birch/disks")
    new = place / f"{nova.id}_disk"
    assert (multi_host.where("web"), old.exists(), new.exists()) == (
        "alder" if stays else "birch",
        stays,
        not stays,
    )
    whole = (old if stays else new).stat()
    assert (whole.st_ino == inode, whole.st_nlink) == (stays or shared, 1)
    wait_for_ticks(nova)


def _between_hosts(multi_host, guest, layout, *, shared):
    """A server of Nova's that runs on alder, adopted; and connections to both hosts."""
    instances = multi_host.directory / "instances"  # noqa: F811
    own = multi_host.place_locally(shared=shared)
    bases = f"base_images_pool_path = {instances}/_base"
    for each in ("alder", "birch") if shared else ("alder",):
        own[each] = re.sub("base_images_pool_path = .*", bases, own[each])
    multi_host.configure(own, default=f"instances_path = {instances}")
    nova = NovaServer(instances=instances)
    hosts = {each: libvirt.open(multi_host.hosts[each].uri) for each in ("alder", "birch")}
    multi_host.ok("host", "list", "--refresh")
    hosts["alder"].defineXML(nova.domain(layout(nova, guest))).create()
    multi_host.ok("server", "adopt", nova.id, "--yes", "--host", "alder")
    return nova, hosts
