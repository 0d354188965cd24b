"""The table of docs/remote-hosts.md, walked row by row on a host whose files are not here."""

from pathlib import Path

import pycdlib
import pytest

from millpond.errors import NeedsHostFiles
from millpond.libvirt.pool import send_file
from millpond.model.formats import Backend
from millpond.model.sizes import MiB
from tests.real.test_remote_hosts import add, create
from tests.support.two_faced import two_faced
from tests.support.waiting import wait_for

PAGE = Path(__file__).parents[2] / "docs/remote-hosts.md"
ID = "11111111-2222-3333-4444-555555555555"
MAPPING = "images_type_mapping = qcow2:qcow2, raw:raw"
WORKS, REFUSED = "works", "refused"


def said():
    """What happens without the host's files, in one word, by what is done."""
    text = PAGE.read_text().partition("## What happens without")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].replace("`", ""): row[2].split()[0].strip(":,") for row in cells}


def done(*words):
    def act(remote):
        remote.ok(*words)
        return WORKS

    return act


def refused(*words):
    def act(remote):
        code, message = remote.fails(*words)
        assert (code, "cannot be opened here" in message) == (5, True), message
        return REFUSED

    return act


def created(name, image, **flavor):
    def act(remote):
        made = create(remote, name, image, **flavor)
        remote.wait_for_console(made.id, "READY")
        return WORKS

    return act


def create_with_a_kernel(remote):
    (remote.directory / "kernel").write_bytes(b"kernel" * 99)
    (remote.directory / "root").write_bytes(bytes(MiB))
    remote.ok("image", "add", remote.directory / "kernel", "--name", "aki", "--disk-format", "aki")
    words = ("--name", "ami", "--disk-format", "ami", "--property", "kernel_id=aki")
    remote.ok("image", "add", remote.directory / "root", *words)
    remote.ok("server", "create", "direct", "--image", "ami", "--memory", "32M", "--no-start")
    (kernel,) = [each for each in remote.server("direct").disks if each.role == "kernel"]
    found = remote.libvirtd.run("cat", f"{remote.disks}/{kernel.volume}").stdout
    assert found == "kernel" * 99
    remote.ok("server", "delete", "direct")
    return WORKS


def create_a_ploop_disk(remote):
    remote.configure("images_type_mapping = qcow2:ploop")
    with pytest.raises(NeedsHostFiles, match="libvirt cannot make one"):
        create(remote, "container", "qcow2")
    remote.configure(MAPPING)
    return REFUSED


def open_console(remote):
    remote.host().domains.open_console(remote.server("web").id).close()
    return WORKS


def snapshot_off(remote):
    remote.ok("server", "stop", "web", "--force")
    remote.ok("server", "snapshot", "web", "cold")
    return WORKS


def grow_a_disk_that_is_mistaken(remote):
    remote.ok("server", "stop", "raw", "--force")
    pool = remote.host().pools.for_disk(Backend.RAW)
    send_file(pool, remote.server("raw").disks[0].volume, remote.directory / "two-faced")
    pool.refresh()
    return refused("server", "disk", "grow", "raw", "disk", "--size", "8M")(remote)


def verify_a_wrong_one(remote):
    (name,) = [each for each in remote.files(remote.bases) if each.endswith(".qcow2")]
    words = (
        "dd",
        "if=/dev/urandom",
        f"of={remote.bases}/{name}",
        "bs=1",
        "count=8",
        "seek=300000",
    )
    remote.libvirtd.run(*words, "conv=notrunc")
    found = remote.run("cache", "verify", "--all")
    assert (found.returncode, "cannot be opened here" in found.stdout) == (1, True)
    assert name in remote.files(remote.bases)
    return REFUSED


def edit(remote):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VISUAL", "sed -i 's|</uuid>|</uuid><title>edited</title>|'")
        assert remote.ok("server", "edit", "web").startswith("edited web")
    return WORKS


def resize(remote):
    remote.ok("server", "resize", "web", "--disk", "12M")
    remote.ok("server", "stop", "web", "--force")
    remote.ok("server", "resize", "web", "--vcpus", "2", "--memory", "48M")
    remote.ok("server", "start", "web")
    return WORKS


def reboot_softly(remote):
    """When the guest can hear it."""
    remote.ok("server", "stop", "web", "--force")
    web = remote.server("web").id
    booted = remote.console(web).count("READY")
    remote.ok("server", "start", "web")
    wait_for(lambda: remote.console(web).count("READY") > booted, 30)
    remote.ok("server", "reboot", "web", "--soft")
    return WORKS


def resize_and_revert(remote):
    remote.ok("server", "stop", "raw", "--force")
    remote.ok("server", "resize", "raw", "--disk", "2M", "--revertable")
    remote.ok("server", "resize", "raw", "--revert")
    remote.ok("server", "start", "raw")
    return WORKS


def refuse_revertable(remote):
    """It stays off for what follows."""
    remote.ok("server", "stop", "web", "--force")
    return refused("server", "resize", "web", "--vcpus", "1", "--revertable")(remote)


def pause(remote):
    remote.ok("server", "start", "web")
    remote.ok("server", "pause", "web")
    assert remote.json("server", "show", "web")["state"] == "paused"
    remote.ok("server", "unpause", "web")
    return WORKS


def rename(remote):
    remote.ok("server", "rename", "web", "www")
    remote.ok("server", "rename", "www", "web")
    return WORKS


def install_from_an_iso(remote):
    iso, path = pycdlib.PyCdlib(), remote.directory / "disc.iso"
    iso.new()
    iso.write(str(path))
    iso.close()
    remote.ok("image", "add", path, "--name", "disc")
    words = ("--iso", "disc", "--disk", "8M", "--memory", "32M")
    assert remote.json("server", "create", "new", *words)["state"] == "running"
    remote.ok("server", "delete", "new")
    return WORKS


def clone(remote):
    remote.ok("server", "clone", "web", "twin", "--no-start")
    remote.ok("server", "delete", "twin")
    return WORKS


def export(remote):
    remote.ok("server", "export", "web", remote.directory / "web.tar")
    return WORKS


def import_(remote):
    remote.ok("server", "import", remote.directory / "web.tar", "--name", "back", "--no-start")
    remote.ok("server", "delete", "back")
    return WORKS


def start_network(remote):
    with remote.libvirtd.connect() as connection:
        connection.networkDefineXML("<network><name>lab</name><bridge name='vbrlab'/></network>")
    remote.ok("network", "start", "lab")
    return WORKS


MAC = "52:54:00:00:00:77"

WALK = {
    "server create": created("web", "qcow2"),
    "server create with a kernel": create_with_a_kernel,
    "server create from a raw template": created("raw", "raw", disk=MiB),
    "server create of a ploop disk": create_a_ploop_disk,
    "server stop": done("server", "stop", "web", "--force"),
    "server start": done("server", "start", "web"),
    "server reboot": done("server", "reboot", "web", "--hard"),
    "server reboot --soft": reboot_softly,
    "server console": open_console,
    "server console --log": done("server", "console", "web", "--log"),
    "server disk add": done("server", "disk", "add", "web", "--size", "4M"),
    "server disk list": done("server", "disk", "list", "web"),
    "server disk grow": done("server", "disk", "grow", "web", "disk", "--size", "8M"),
    "server resize": resize,
    "server show": done("server", "show", "web"),
    "server set": done("server", "set", "web", "--description", "of a remote host"),
    "server edit": edit,
    "server nic add": done("server", "nic", "add", "web", "--network", f"user,mac={MAC}"),
    "server nic list": done("server", "nic", "list", "web"),
    "network list": done("network", "list"),
    "network start": start_network,
    "network stop": done("network", "stop", "lab"),
    "server snapshot of a running server": done("server", "snapshot", "web", "live"),
    "server snapshot": snapshot_off,
    "server snapshot --all-disks": done("server", "snapshot", "web", "all", "--all-disks"),
    "server clone": clone,
    "server export": export,
    "server import": import_,
    "server pause": pause,
    "server unpause": pause,
    "server rebuild": done("server", "rebuild", "web", "--force"),
    "server rescue": done("server", "rescue", "web", "--force"),
    "server unrescue": done("server", "unrescue", "web", "--force"),
    "server resize --revertable of a raw disk": resize_and_revert,
    "server resize --revertable of another disk": refuse_revertable,
    "server rename": rename,
    "server nic remove": done("server", "nic", "remove", "web", MAC),
    "server disk detach": done("server", "disk", "detach", "web", "disk.data0"),
    "server disk attach": done("server", "disk", "attach", "web", "disk.data0"),
    "server disk remove": done("server", "disk", "remove", "web", "disk.data0"),
    "server create --iso": install_from_an_iso,
    "server cdrom insert": done("server", "cdrom", "insert", "web", "disc"),
    "server cdrom eject": done("server", "cdrom", "eject", "web"),
    "server disk grow of a disk that libvirt takes for another format": (
        grow_a_disk_that_is_mistaken
    ),
    "server adopt": refused("server", "adopt", ID, "--yes"),
    "transition status": refused("transition", "status", "--host", "local"),
    "cache fetch": done("cache", "fetch", "vmdk"),
    "cache list": done("cache", "list"),
    "cache pin": done("cache", "pin", "vmdk"),
    "cache verify": done("cache", "verify", "--all"),
    "doctor": done("doctor"),
    "cache verify that finds a wrong template beneath disks": verify_a_wrong_one,
    "server delete": done("server", "delete", "web", "raw"),
    "cache prune": done("cache", "prune", "--all-unused"),
}


def test_ssh_does_not_take_this_machines_loopback_for_the_hosts(remote, micro_guest):
    add(remote, micro_guest, "raw")
    published = ("--publish", "18084:22")
    remote.ok("server", "create", "web", "--image", "raw", "--memory", "32M", *published)
    code, message = remote.fails("server", "ssh", "web")
    assert (code, "no address of server 'web' is known" in message) == (3, True), message


def test_the_page_says_what_happens(remote, micro_guest):
    page = said()
    assert set(page) == set(WALK)
    (remote.directory / "two-faced").write_bytes(two_faced(micro_guest, "/etc/passwd"))
    for format in ("qcow2", "raw", "vmdk"):
        add(remote, micro_guest, format)
    for what, act in WALK.items():
        assert (what, act(remote)) == (what, page[what])
