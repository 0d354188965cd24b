"""Servers whose disk has no boot loader: ami images with their kernel (aki) and ramdisk (ari)."""

import os
import stat

import pytest
from lxml import etree

from tests.support.refusals import world

BOOT = "vmlinuz", "initrd"


@pytest.fixture
def parts(millpond, linux_ami):
    """A kernel and a ramdisk in the catalogue."""
    for name, suffix in zip(BOOT, (".aki", ".ari"), strict=True):
        millpond.ok("image", "add", linux_ami.with_suffix(suffix), "--name", name)
    return linux_ami


@pytest.fixture
def ami(millpond, parts):
    """An image of a whole-disk file system, which names them."""
    return add(millpond, parts, "linux", "kernel_id=vmlinuz", "ramdisk_id=initrd")


def add(millpond, path, name, *properties):
    words = [word for each in properties for word in ("--property", each)]
    millpond.ok("image", "add", path, "--name", name, "--disk-format", "ami", *words)
    return name


def create(millpond, name, image, *options):
    usual = ("--memory", "128M", "--network", "none")
    return millpond.json("server", "create", name, "--image", image, *usual, *options)


def os_element(connection, name):
    return etree.fromstring(connection.lookupByName(name).XMLDesc()).find("os")


def owner_and_mode(path):
    status = os.stat(path)
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


def test_linux_boots_from_a_disk_without_a_boot_loader(millpond, ami, parts, connection):
    made = create(millpond, "web", ami)
    millpond.wait_for_console(made["id"], "TICK", 90)
    text = millpond.console(made["id"])
    assert "MARKER: millpond-linux" in text  # read from its root disk, a file system as a whole
    assert "ROOT: /dev/vda\n" in text
    assert text.count("\nDISK: ") == 2  # with the config drive; it sees neither kernel nor ramdisk

    roles = {disk["role"]: disk for disk in made["disks"]}
    assert list(roles) == ["disk", "disk.config", "kernel", "ramdisk"]
    assert roles["disk"]["format"] == "qcow2"  # the root disk goes by the mapping, as always
    for role, suffix, tag in (("kernel", ".aki", "kernel"), ("ramdisk", ".ari", "initrd")):
        disk, path = roles[role], millpond.disks / f"{made['id']}_{role}"
        assert (disk["backend"], disk["format"], disk["overlay"]) == ("raw", "raw", False)
        assert disk["target"] == ""
        assert os_element(connection, "web").findtext(tag) == str(path)
        assert path.read_bytes() == parts.with_suffix(suffix).read_bytes()
        base = millpond.bases / disk["template"]["volume"]
        assert path.stat().st_ino != base.stat().st_ino
        assert owner_and_mode(base) == (0, 0, 0o444)
    assert os_element(connection, "web").findtext("cmdline") == "root=/dev/vda console=ttyS0"
    shown = millpond.ok("server", "show", "web")
    assert "Disk kernel" in shown
    assert "vmlinuz and initrd: root=/dev/vda console=ttyS0" in shown


def test_reboot_stop_start_and_delete(millpond, ami, connection):
    made = create(millpond, "web", ami)
    millpond.wait_for_console(made["id"], "BOOTS: 1", 90)
    kernel = millpond.disks / f"{made['id']}_kernel"
    assert owner_and_mode(kernel)[0] != 0  # QEMU's, while it runs
    millpond.ok("server", "reboot", "web", "--hard")
    millpond.wait_for_console(made["id"], "BOOTS: 2", 90)
    millpond.ok("server", "stop", "web", "--force")
    assert owner_and_mode(kernel) == (0, 0, 0o600)
    millpond.ok("server", "start", "web")
    millpond.wait_for_console(made["id"], "BOOTS: 3", 90)
    assert "no problem" in millpond.ok("doctor")
    millpond.ok("server", "delete", "web")
    assert list(millpond.disks.iterdir()) == []
    assert connection.listAllDomains() == []
    millpond.ok("image", "remove", *BOOT, ami)
    assert list(millpond.bases.iterdir()) == []
    assert list((millpond.state / "images" / "blobs").iterdir()) == []


def test_two_servers_share_templates_and_nothing_else(millpond, ami):
    for name in ("a", "b"):
        create(millpond, name, ami, "--no-start")
    assert len(list(millpond.bases.iterdir())) == 3
    assert len(list(millpond.disks.iterdir())) == 8
    millpond.ok("server", "delete", "a")
    assert "no problem" in millpond.ok("doctor")


@pytest.mark.parametrize(
    "format", ["qcow2", pytest.param("raw", marks=pytest.mark.full)], ids=["qcow2", "raw"]
)
def test_a_snapshot_boots_with_the_same_kernel(millpond, ami, format):
    made = create(millpond, "web", ami)
    millpond.wait_for_console(made["id"], "BOOTS: 1", 90)
    millpond.ok("server", "stop", "web", "--force")
    millpond.ok("server", "snapshot", "web", "snap", "--format", format)
    millpond.ok("server", "delete", "web")
    millpond.ok("image", "remove", ami)
    code, message = millpond.fails("image", "remove", "vmlinuz")
    assert (code, "is needed by image 'snap'" in message) == (4, True)
    again = create(millpond, "again", "snap")
    assert [disk["role"] for disk in again["disks"]] == [
        "disk",
        "disk.config",
        "kernel",
        "ramdisk",
    ]
    millpond.wait_for_console(again["id"], "BOOTS: 2", 90)


@pytest.mark.parametrize(
    "options",
    [(), pytest.param(("--firmware", "uefi", "--memory", "256M"), marks=pytest.mark.full)],
    ids=["bios", "uefi"],
)
def test_another_bus_another_command_line(millpond, parts, options):
    """The kernel is told the root disk by the name that its bus gives; or what the image says."""
    line = "root=/dev/sda console=ttyS0 quiet panic=-1"
    stated = ("kernel_id=vmlinuz", "ramdisk_id=initrd", "hw_disk_bus=scsi")
    usual = create(millpond, "usual", add(millpond, parts, "usual", *stated), "--no-start")
    assert usual["boot"]["command_line"] == "root=/dev/sda console=ttyS0"
    image = add(millpond, parts, "linux", *stated, f"os_command_line={line}")
    # Alone on its bus: Linux gives sda to whichever SCSI disk answers first.
    made = create(millpond, "web", image, *options, "--no-config-drive")
    assert made["boot"]["command_line"] == line
    text = millpond.wait_for_console(made["id"], "TICK", 90)
    assert "ROOT: /dev/sda" in text
    assert "Command line" not in text  # quiet


def test_an_ami_without_a_kernel_boots_by_itself(millpond, micro_guest, connection):
    made = create(millpond, "web", add(millpond, micro_guest.path, "guest"))
    assert micro_guest.marker in millpond.wait_for_console(made["id"], "READY")
    assert [each.tag for each in os_element(connection, "web")] == ["type"]


def test_kernel_and_ramdisk_go_to_the_pools_of_their_names(millpond, workdir, ami):
    millpond.configure(
        f"pool_by_disk_name = kernel:boot, ramdisk:boot\npool_paths = boot:{workdir / 'boot'}"
    )
    made = create(millpond, "web", ami)
    pools = {disk["role"]: disk["pool"] for disk in made["disks"]}
    assert (pools["disk"], pools["kernel"], pools["ramdisk"]) == (
        "nova-disks-pool",
        "boot",
        "boot",
    )
    assert millpond.json("server", "show", "web")["state"] == "running"


def test_what_cannot_be_meant_is_refused_and_changes_nothing(millpond, ami, parts, connection):
    add(millpond, parts, "other", "kernel_id=vmlinuz")
    too_long = f"os_command_line={'x' * 2048}"
    create(millpond, "web", ami, "--no-start")
    before = world(millpond, connection)
    new = ("image", "add", parts, "--name", "new")
    for code, sentence, words in (
        (3, "there is no image 'gone'", (*new, "--property", "kernel_id=gone")),
        (2, "is declared as ari, not as aki", (*new, "--property", "kernel_id=initrd")),
        (2, "a ramdisk needs a kernel", (*new, "--property", "ramdisk_id=initrd")),
        (
            4,
            "'vmlinuz' is needed by web, image 'linux', image 'other'",
            ("image", "remove", "vmlinuz"),
        ),
        (4, "'initrd' is needed by web", ("image", "remove", "initrd", ami)),
        (5, "a disk from an aki image", ("server", "create", "x", "--image", "vmlinuz")),
        (5, "a disk from an ari image", ("explain", "initrd")),
        (2, "cannot be the command line", (*new, "--property", too_long)),
        (5, "it came with the server", ("server", "disk", "remove", "web", "kernel")),
        (5, "and no disk", ("server", "disk", "grow", "web", "ramdisk", "--size", "1G")),
    ):
        found, message = millpond.fails(*words)
        assert (found, sentence in message) == (code, True), message
    assert world(millpond, connection) == before


def test_a_missing_kernel_is_said_before_the_server_starts(millpond, ami, connection):
    made = create(millpond, "web", ami, "--no-start")
    volume = f"{made['id']}_kernel"
    connection.storagePoolLookupByName("nova-disks-pool").storageVolLookupByName(volume).delete()
    code, message = millpond.fails("server", "start", "web")
    assert (code, f"there is no volume '{volume}'" in message) == (3, True)
    assert "disk 'kernel' of server 'web' is missing" in millpond.run("doctor").stdout
    millpond.ok("server", "delete", "web")
    assert list(millpond.disks.iterdir()) == []


def test_explain_tells_of_kernel_and_ramdisk(millpond, ami, parts):
    found = millpond.json("explain", ami)["hosts"][0]
    assert found["declared"] == "ami"
    assert [each["image"] for each in found["boot"]] == list(BOOT)
    assert found["boot"][1]["size"] == parts.with_suffix(".ari").stat().st_size
    text = millpond.ok("explain", ami)
    assert "a copy of vmlinuz (" in text
    assert "has yet to be made" in text
    create(millpond, "web", ami, "--no-start")
    assert "has yet to be made" not in millpond.ok("explain", ami)
