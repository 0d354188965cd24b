"""What people change with virsh stays over start, reboot and changes of disks."""

import libvirt
import pytest
from lxml import etree

from millpond.doctor import definitions
from millpond.doctor.finding import Level
from tests.support.waiting import wait_for

INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE


@pytest.fixture
def web(millpond, micro_guest):
    millpond.ok("image", "add", micro_guest.path, "--name", "micro")
    options = ("--image", "micro", "--memory", "32M", "--no-start")
    return millpond.json("server", "create", "web", *options)


def definition(connection, name="web"):
    return etree.fromstring(connection.lookupByName(name).XMLDesc(INACTIVE))


def change(connection, *changes):
    """As virsh edit does."""
    root = definition(connection)
    for each in changes:
        each(root)
    connection.defineXMLFlags(etree.tostring(root, encoding="unicode"), 1)


def add(path, xml):
    return lambda root: root.find(path).append(etree.fromstring(xml))


def text(path, value):
    def put(root):
        root.find(path).text = value

    return put


def drop(path):
    def take_away(root):
        found = root.find(path)
        found.getparent().remove(found)

    return take_away


CHANGES = (
    add(".", "<title>Shop</title>"),
    add(".", "<description>hello from virsh</description>"),
    add("devices", "<graphics type='vnc' autoport='yes' passwd='secret' listen='127.0.0.1'/>"),
    add("devices", "<video><model type='vga'/></video>"),
    add("devices", "<input type='tablet' bus='usb'/>"),
    add("devices", "<watchdog model='i6300esb' action='reset'/>"),
    drop("devices/memballoon"),
    add("devices", "<memballoon model='none'/>"),
    drop("cpu"),
    add(".", "<cpu mode='custom' match='exact'><model>Nehalem</model></cpu>"),
    drop("devices/rng"),
)


def kept(root):
    return {
        "title": root.findtext("title"),
        "description": root.findtext("description"),
        "password": root.find("devices/graphics").get("passwd"),
        "video": root.find("devices/video/model").get("type"),
        "tablet": root.find("devices/input[@type='tablet']") is not None,
        "watchdog": root.find("devices/watchdog").get("action"),
        "balloon": root.find("devices/memballoon").get("model"),
        "cpu": root.findtext("cpu/model"),
        "rng": root.find("devices/rng") is not None,
    }


WANTED = {
    "title": "Shop",
    "description": "hello from virsh",
    "password": "secret",
    "video": "vga",
    "tablet": True,
    "watchdog": "reset",
    "balloon": "none",
    "cpu": "Nehalem",
    "rng": False,
}


def test_it_stays_over_start_reboot_and_disks(millpond, web, connection):
    change(connection, *CHANGES)
    for words in (
        ("start", "web"),
        ("disk", "add", "web", "--size", "1M"),
        ("reboot", "web", "--hard"),
        ("stop", "web", "--force"),
        ("disk", "add", "web", "--size", "1M"),
        ("disk", "remove", "web", "disk.data0"),
        ("set", "web", "--no-autostart"),
        ("start", "web"),
    ):
        done = millpond.run("server", *words)
        assert (done.returncode, done.stderr) == (0, ""), words
        assert kept(definition(connection)) == WANTED, words
    millpond.wait_for_console(web["id"], "READY")
    running = etree.fromstring(connection.lookupByName("web").XMLDesc())
    assert running.find("devices/graphics").get("port").isdigit()
    assert definition(connection).find("metadata") is not None
    checks = {each["check"]: each["level"] for each in millpond.json("doctor")}
    assert checks["definitions"] == "ok"


def test_a_disk_keeps_its_address_when_another_one_goes(millpond, web, connection):
    for _ in range(2):
        millpond.ok("server", "disk", "add", "web", "--size", "1M")
    before = definition(connection).findall("devices/disk")[-1]
    assert before.find("target").get("dev") == "vdd"
    millpond.ok("server", "disk", "remove", "web", "disk.data0")
    millpond.ok("server", "start", "web")
    after = definition(connection).findall("devices/disk")[-1]
    assert dict(after.find("address").attrib) == dict(before.find("address").attrib)


def test_what_contradicts_the_record_is_named_once_and_told_by_doctor(
    millpond, web, connection, workdir
):
    (workdir / "own.raw").write_bytes(bytes(2**20))
    disk = "<disk type='{}' device='disk'>{}<source {}/><target dev='{}' bus='virtio'/></disk>"
    own = f"file='{workdir}/own.raw'"
    volume = f"pool='nova-disks-pool' volume='{web['id']}_disk.config'"
    change(
        connection,
        text("memory", str(64 * 1024)),
        drop("currentMemory"),
        text("vcpu", "2"),
        add("devices", disk.format("file", "<driver name='qemu' type='raw'/>", own, "vdy")),
        add("devices", disk.format("volume", "", volume, "vdz")),
    )
    (found,) = [each for each in millpond.json("doctor") if each["check"] == "definitions"]
    assert found["level"] == "warning"
    assert "64 MiB of memory; 2 vCPUs" in found["what"]

    done = millpond.run("server", "start", "web")
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert "web: changed manually, and now again as recorded: 64 MiB of memory; 2 v" in line
    root = definition(connection)
    assert (root.findtext("memory"), root.findtext("vcpu")) == (str(32 * 1024), "1")
    targets = [each.get("dev") for each in root.findall("devices/disk/target")]
    assert targets == ["vda", "vdb", "vdy"]
    done = millpond.run("server", "reboot", "web", "--hard")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_server_on_somebody_elses_overlay_is_not_started_without_it(
    millpond, web, connection, workdir
):
    millpond.ok("server", "start", "web")
    domain = connection.lookupByName("web")
    workdir.chmod(0o777)
    domain.snapshotCreateXML(
        "<domainsnapshot><disks><disk name='vda' snapshot='external'>"
        f"<source file='{workdir}/over.qcow2'/></disk>"
        "<disk name='vdb' snapshot='no'/></disks></domainsnapshot>",
        libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_DISK_ONLY
        | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_NO_METADATA,
    )
    millpond.ok("server", "stop", "web", "--force")
    status, message = millpond.fails("server", "start", "web")
    assert status == 4
    assert f"disks of server 'web' are overlaid: vda by {workdir}/over.qcow2" in message
    assert "virsh blockcommit" in message
    source = definition(connection).find("devices/disk/source")
    assert source.get("file") == f"{workdir}/over.qcow2"
    assert [each.level for each in definitions.look(millpond.host())] == [Level.PROBLEM]

    domain.create()
    status, message = millpond.fails("server", "reboot", "web", "--hard")
    assert (status, domain.isActive()) == (4, True)
    shallow = libvirt.VIR_DOMAIN_BLOCK_COMMIT_ACTIVE | libvirt.VIR_DOMAIN_BLOCK_COMMIT_SHALLOW
    domain.blockCommit("vda", None, None, 0, shallow)
    wait_for(lambda: ready(domain), 20)
    domain.blockJobAbort("vda", libvirt.VIR_DOMAIN_BLOCK_JOB_ABORT_PIVOT)
    millpond.ok("server", "reboot", "web", "--hard")


def ready(domain):
    job = domain.blockJobInfo("vda")
    return job and job["cur"] == job["end"]


def test_the_variables_of_uefi_stay(millpond, micro_guest, connection):
    millpond.ok("image", "add", micro_guest.path, "--name", "micro")
    words = ("--image", "micro", "--memory", "64M", "--firmware", "uefi", "--network", "none")
    millpond.ok("server", "create", "web", *words)
    running = etree.fromstring(connection.lookupByName("web").XMLDesc())
    before = running.findtext("os/nvram")
    millpond.ok("server", "reboot", "web", "--hard")
    running = etree.fromstring(connection.lookupByName("web").XMLDesc())
    assert running.findtext("os/nvram") == before
