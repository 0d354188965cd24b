"""The variables of a server's UEFI lie in the pool of its disks, and follow it everywhere."""

import json
import re

import libvirt
import pytest
from lxml import etree

from tests.support.variables_guest import build_initrd
from tests.support.waiting import wait_for

UEFI = ("--firmware", "uefi", "--memory", "256M", "--network", "none")
pytestmark = pytest.mark.timeout(600)
PATIENCE = 180
"""Seconds of a boot by OVMF under emulation, on a busy machine: 10 as a rule."""


def add_guest(hosts, linux_ami, directory):
    """A kernel that OVMF starts, which counts in a variable."""
    initrd = build_initrd(linux_ami, directory / "initrd")
    hosts.ok("image", "add", linux_ami.with_suffix(".aki"), "--name", "vmlinuz")
    hosts.ok("image", "add", initrd, "--name", "initrd", "--disk-format", "ari")
    parts = ("--property", "kernel_id=vmlinuz", "--property", "ramdisk_id=initrd")
    line = ("--property", "os_command_line=console=ttyS0 quiet panic=-1")
    hosts.ok("image", "add", linux_ami, "--name", "linux", "--disk-format", "ami", *parts, *line)


@pytest.fixture
def counting(multi_host, linux_ami, workdir):
    add_guest(multi_host, linux_ami, workdir)
    return multi_host


def numbers(hosts, name, word):
    host, server = hosts.deployment().find(name)
    printed = host.consoles.read(server.id, name).decode(errors="replace")
    return [int(each) for each in re.findall(rf"{word}: (\d+)\.", printed)]


def wait_for_writes(hosts, name, more=3):
    """The last number that is written."""
    wait_for(lambda: len(numbers(hosts, name, "WROTE")) >= more, PATIENCE)
    return numbers(hosts, name, "WROTE")[-1]


def stop(hosts, name):
    """At any moment, as a power failure would. The last number that it wrote."""
    hosts.ok("server", "stop", name, "--force")
    return numbers(hosts, name, "WROTE")[-1]


def check_found(hosts, name, last, boots):
    """Its guest finds what it wrote; that may not have been printed yet."""
    wait_for(lambda: len(numbers(hosts, name, "FOUND")) >= boots, PATIENCE)
    assert numbers(hosts, name, "FOUND")[-1] in (last, last + 1)


@pytest.mark.full
def test_a_guest_finds_its_variables_wherever_it_comes_to(counting):
    hosts = counting
    hosts.ok("server", "create", "web", "--image", "linux", *UEFI, "--host", "alder")
    wait_for_writes(hosts, "web")
    hosts.ok("server", "migrate", "web", "--host", "birch", "--live")
    wait_for_writes(hosts, "web")
    last = stop(hosts, "web")
    hosts.ok("server", "start", "web")
    check_found(hosts, "web", last, 1)
    wait_for_writes(hosts, "web")
    last = stop(hosts, "web")
    hosts.ok("server", "rename", "web", "db")
    told = hosts.json("server", "migrate", "db", "--host", "cedar")
    assert next(each["way"] for each in told["disks"] if each["role"] == "nvram") == "copy"
    hosts.ok("server", "start", "db")
    check_found(hosts, "db", last, 1)
    assert hosts.ok("doctor", "--placement").endswith("no problem\n")
    hosts.ok("server", "delete", "db", "--yes")
    assert [hosts.volumes(each) for each in hosts.hosts] == [[], [], []]


@pytest.mark.full
def test_in_a_shared_pool_they_move_and_survive_the_death_of_a_host(
    sharing_hosts, linux_ami, workdir
):
    hosts, alder = sharing_hosts, sharing_hosts.hosts["alder"]
    add_guest(hosts, linux_ami, workdir)
    hosts.ok("host", "list", "--refresh")
    hosts.ok("server", "create", "web", "--image", "linux", *UEFI, "--host", "birch")
    wait_for_writes(hosts, "web")
    told = hosts.json("server", "migrate", "web", "--host", "alder", "--live")
    assert {each["way"] for each in told["disks"]} == {"shared"}
    last = wait_for_writes(hosts, "web", more=len(numbers(hosts, "web", "WROTE")) + 2)
    alder.lose_power()
    try:
        evacuated = ("server", "evacuate", "web", "--from", "alder", "--fenced")
        done = hosts.run(*evacuated, "--host", "birch")
        assert (done.returncode, "UEFI variables" in done.stderr) == (0, False), done.stderr
        wait_for(lambda: len(numbers(hosts, "web", "FOUND")) == 2, PATIENCE)
        assert numbers(hosts, "web", "FOUND")[-1] >= last
    finally:
        alder.start()
    hosts.run("doctor", "--repair", "--host", "alder")
    hosts.ok("host", "enable", "alder")
    last = stop(hosts, "web")
    hosts.ok("server", "start", "web")
    check_found(hosts, "web", last, 3)
    assert hosts.ok("doctor", "--placement").endswith("no problem\n")
    hosts.ok("server", "delete", "web", "--yes")
    assert list((hosts.directory / "shared" / "disks").iterdir()) == []


@pytest.fixture
def web(millpond, micro_guest):
    """Never started. OVMF writes variables of its own when it first runs."""
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    return millpond.json("server", "create", "web", "--image", "guest", *UEFI, "--no-start")


def variables(millpond, server):
    return millpond.disks / f"{server['id']}_nvram"


def run_firmware(millpond, server, name="web"):
    """Until it has written something. What its variables are then."""
    path = variables(millpond, server)
    millpond.ok("server", "start", name)
    made = path.read_bytes()
    wait_for(lambda: path.read_bytes() != made, PATIENCE)
    millpond.ok("server", "stop", name, "--force")
    return path.read_bytes()


def test_they_are_a_volume_of_their_server_from_its_first_start_on(millpond, web, connection):
    path = variables(millpond, web)
    assert not path.exists()
    assert "no problem" in millpond.ok("doctor")
    written = run_firmware(millpond, web)
    assert "no problem" in millpond.ok("doctor")
    millpond.ok("server", "rename", "web", "db")
    assert (path.read_bytes(), connection.lookupByUUIDString(web["id"]).name()) == (written, "db")
    millpond.ok("server", "snapshot", "db", "kept")
    millpond.ok("server", "clone", "db", "twin", "--no-start")
    twin = millpond.json("server", "show", "twin")
    assert [each["role"] for each in twin["disks"]] == ["disk", "disk.config", "nvram"]
    assert not variables(millpond, twin).exists()
    assert run_firmware(millpond, twin, "twin") != b""
    assert path.read_bytes() == written
    archive = str(millpond.directory / "db.tar")
    millpond.ok("server", "export", "db", archive)
    millpond.ok("server", "delete", "db", "--yes")
    assert not path.exists()
    millpond.ok("server", "import", archive, "--no-start")
    assert not path.exists()
    run_firmware(millpond, web, "db")
    assert "no problem" in millpond.ok("doctor")
    millpond.ok("server", "delete", "db", "twin", "--yes")
    assert list(millpond.disks.iterdir()) == []


def forget_variables(millpond, server, connection):
    """As an earlier version has made it."""
    path = millpond.state / "servers" / f"{server['id']}.json"
    record = json.loads(path.read_text())
    record["disks"] = [each for each in record["disks"] if each["role"] != "nvram"]
    path.write_text(json.dumps(record))
    domain = connection.lookupByUUIDString(server["id"])
    root = etree.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    boot = root.find("os")
    boot.remove(boot.find("nvram"))
    connection.defineXML(etree.tostring(root, encoding="unicode"))


def test_a_server_from_before_keeps_its_file_and_its_name(millpond, web, connection, libvirtd):
    forget_variables(millpond, web, connection)
    millpond.ok("server", "start", "web")
    running = etree.fromstring(connection.lookupByName("web").XMLDesc())
    file = running.findtext("os/nvram")
    assert file.endswith("/web_VARS.fd")
    millpond.ok("server", "reboot", "web", "--hard")
    millpond.ok("server", "stop", "web", "--force")
    code, message = millpond.fails("server", "rename", "web", "db")
    assert (code, "whose UEFI variables are in no pool" in message) == (5, True), message
    assert "no problem" in millpond.ok("doctor")
    libvirtd.run("test", "-e", file)
    millpond.ok("server", "delete", "web", "--yes")
    libvirtd.run("test", "!", "-e", file)
    assert list(millpond.disks.iterdir()) == []


def test_a_server_from_before_stays_on_its_host(multi_host, micro_guest):
    hosts = multi_host
    hosts.ok("image", "add", micro_guest.path, "--name", "guest")
    words = ("--image", "guest", *UEFI, "--no-start", "--host", "alder")
    made = hosts.json("server", "create", "web", *words)
    told = hosts.json("server", "migrate", "web", "--host", "birch")
    ways = {each["role"]: each["way"] for each in told["disks"]}
    assert (ways["disk"], ways["nvram"]) == ("copy", "new")
    with hosts.hosts["birch"].connect() as connection:
        forget_variables(hosts, made, connection)
    for words in ((), ("--live",)):
        if words:
            hosts.ok("server", "start", "web")
        status, message = hosts.fails("server", "migrate", "web", "--host", "alder", *words)
        reason = "its UEFI variables are in a file of its host"
        assert (status, reason in " ".join(message.split())) == (5, True), message
    assert hosts.where("web") == "birch"
