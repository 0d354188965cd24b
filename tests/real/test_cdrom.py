"""Servers that are installed from an ISO, and media in CD-ROM drives."""

import io

import libvirt
import pycdlib
import pytest
from lxml import etree

from millpond.model.sizes import MiB

SENTENCE = b"FROM CD-ROM\r\n"
# push cs; pop ds; call +0; pop si; add si, 19; cld; lodsb; test al, al; jz +6; mov dx, 0x3f8;
# out dx, al; jmp lodsb; hlt; jmp hlt
PROGRAM = bytes.fromhex("0e1fe800005e83c613fcac84c07406baf803eeebf5f4ebfd") + SENTENCE + b"\0"
ROOM = ("--memory", "32M", "--network", "none", "--no-config-drive")


@pytest.fixture
def disc(millpond, workdir):
    """A CD-ROM that boots, and says so."""
    millpond.configure("images_type = raw")
    iso, path = pycdlib.PyCdlib(), workdir / "disc.iso"
    iso.new()
    program = PROGRAM.ljust(2048, b"\0")
    iso.add_fp(io.BytesIO(program), len(program), "/BOOT.;1")
    iso.add_eltorito("/BOOT.;1")
    iso.write(str(path))
    iso.close()
    millpond.ok("image", "add", path, "--name", "disc")


def install(millpond):
    words = ("--iso", "disc", "--disk", "8M", *ROOM)
    return millpond.json("server", "create", "new", *words)


def drive_of(connection, name="new"):
    """The volume in it, in the running domain or, of one that is off, in the definition."""
    xml = etree.fromstring(connection.lookupByName(name).XMLDesc())
    (found,) = xml.findall("devices/disk[@device='cdrom']")
    source = found.find("source")  # of an empty one, too: with libvirt's own number
    assert source is None or source.get("file") is None
    return None if source is None else source.get("volume")


def test_the_cd_rom_boots_until_the_disk_does(millpond, disc, connection, micro_guest):
    made = install(millpond)
    assert [(each["role"], each["target"]) for each in made["disks"]] == [
        ("disk", "vda"),
        ("cdrom", "hda"),
    ]
    millpond.wait_for_console(made["id"], SENTENCE.decode().strip())
    millpond.ok("server", "stop", "new", "--force")
    with (millpond.disks / f"{made['id']}_disk").open("r+b") as root:  # installed
        root.write(micro_guest.path.read_bytes())
    millpond.ok("server", "start", "new")
    assert micro_guest.marker in millpond.wait_for_console(made["id"], "READY")
    assert drive_of(connection) == f"{made['id']}_cdrom"
    assert "no problem" in millpond.ok("doctor")


def test_media_are_changed_while_the_server_runs(millpond, disc, connection):
    made = install(millpond)
    code, message = millpond.fails("image", "remove", "disc")
    assert (code, "needed by new" in message) == (4, True)
    code, message = millpond.fails("server", "cdrom", "insert", "new", "disc")
    assert (code, "has 'disc' in it" in message) == (4, True)
    assert millpond.ok("server", "cdrom", "eject", "new") == "ejected disc from new\n"
    assert drive_of(connection) is None
    assert len(list(millpond.disks.iterdir())) == 1
    assert "nothing is in" in millpond.ok("server", "cdrom", "eject", "new")
    millpond.ok("server", "cdrom", "insert", "new", "disc")
    assert drive_of(connection) == f"{made['id']}_cdrom"
    assert millpond.json("server", "show", "new")["cdrom"]["image"]["name"] == "disc"
    assert "no problem" in millpond.ok("doctor")
    millpond.ok("server", "reboot", "new", "--hard")
    assert drive_of(connection) == f"{made['id']}_cdrom"
    millpond.ok("server", "delete", "new")
    assert list(millpond.disks.iterdir()) == []


def test_a_server_that_is_off_gets_a_drive(millpond, disc, connection, micro_guest):
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    millpond.ok("server", "create", "old", "--image", "guest", "--firmware", "uefi", *ROOM)
    code, message = millpond.fails("server", "cdrom", "insert", "old", "disc")
    assert (code, "has no CD-ROM drive" in message) == (5, True)
    millpond.ok("server", "stop", "old", "--force")
    millpond.ok("server", "cdrom", "insert", "old", "disc")
    assert drive_of(connection, "old").endswith("_cdrom")
    millpond.ok("server", "start", "old")
    millpond.ok("server", "cdrom", "eject", "old")
    assert drive_of(connection, "old") is None


def test_a_drive_takes_the_place_of_no_disk(millpond, disc, connection, micro_guest, workdir):
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    words = ("--image", "guest", "--firmware", "uefi", "--no-start", *ROOM)
    millpond.ok("server", "create", "old", *words)
    own = workdir / "own.raw"
    own.write_bytes(bytes(512))
    connection.lookupByName("old").attachDeviceFlags(
        f"<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{own}'/>"
        "<target dev='sda' bus='sata'/></disk>",
        libvirt.VIR_DOMAIN_AFFECT_CONFIG,
    )
    millpond.ok("server", "cdrom", "insert", "old", "disc")
    assert millpond.server("old").cdrom.target == "sdb"
    assert str(own) in connection.lookupByName("old").XMLDesc()


def test_what_cannot_be_is_refused_before_anything_is_made(millpond, disc, micro_guest):
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    for words, sentence in (
        (("--image", "disc"), "use --iso disc --disk 20G"),
        (("--iso", "disc"), "the root disk needs a size"),
        (("--iso", "guest", "--disk", "8M"), "no ISO"),
        (("--iso", "disc", "--image", "guest"), "one image"),
        ((), "say --image or --iso"),
    ):
        code, message = millpond.fails("server", "create", "new", *words, *ROOM)
        assert (code, sentence in message) == (2, True), message
    assert millpond.json("server", "list") == []
    forced = ("--image", "disc", "--force", "--no-start")
    made = millpond.json("server", "create", "new", *forced, *ROOM)
    assert [each["role"] for each in made["disks"]] == ["disk"]
    code, message = millpond.fails("server", "cdrom", "insert", "new", "guest")
    assert (code, "no ISO" in message) == (2, True)


def test_a_blank_root_disk_is_grown_and_kept(millpond, disc):
    install(millpond)
    millpond.ok("server", "stop", "new", "--force")
    millpond.ok("server", "resize", "new", "--disk", "16M")
    assert millpond.server("new").get_disk().size == 16 * MiB
    assert millpond.fails("server", "disk", "remove", "new", "disk")[0] == 5
    assert millpond.fails("server", "disk", "grow", "new", "cdrom", "--size", "1G")[0] == 5
