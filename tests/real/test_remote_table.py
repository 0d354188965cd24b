"""The table of docs/remote-hosts.md, walked row by row on a host whose files are not here."""

from pathlib import Path

import pytest

from millpond.errors import NeedsHostFiles
from millpond.model.formats import Backend
from millpond.model.sizes import MiB
from tests.real.test_remote_hosts import add, create
from tests.support.two_faced import two_faced

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
    def act(far):
        far.ok(*words)
        return WORKS

    return act


def refused(*words):
    def act(far):
        code, message = far.fails(*words)
        assert (code, "cannot be opened here" in message) == (5, True), message
        return REFUSED

    return act


def created(name, image, **flavor):
    def act(far):
        made = create(far, name, image, **flavor)
        far.wait_for_console(made.id, "READY")
        return WORKS

    return act


def create_with_a_kernel(far):
    (far.directory / "kernel").write_bytes(b"kernel" * 99)
    (far.directory / "root").write_bytes(bytes(MiB))
    far.ok("image", "add", far.directory / "kernel", "--name", "aki", "--disk-format", "aki")
    words = ("--name", "ami", "--disk-format", "ami", "--property", "kernel_id=aki")
    far.ok("image", "add", far.directory / "root", *words)
    far.ok("server", "create", "direct", "--image", "ami", "--memory", "32M", "--no-start")
    (kernel,) = [each for each in far.server("direct").disks if each.role == "kernel"]
    found = far.host.run("cat", f"{far.disks}/{kernel.volume}").stdout
    assert found == "kernel" * 99
    far.ok("server", "delete", "direct")
    return WORKS


def create_a_ploop_disk(far):
    far.configure("images_type_mapping = qcow2:ploop")
    with pytest.raises(NeedsHostFiles, match="libvirt cannot make one"):
        create(far, "container", "qcow2")
    far.configure(MAPPING)
    return REFUSED


def open_console(far):
    far.host().domains.open_console(far.server("web").id).close()
    return WORKS


def snapshot_off(far):
    far.ok("server", "stop", "web", "--force")
    far.ok("server", "snapshot", "web", "cold")
    return WORKS


def grow_a_disk_that_is_mistaken(far):
    far.ok("server", "stop", "raw", "--force")
    pool = far.host().pools.for_disk(Backend.RAW)
    pool.send(far.server("raw").disks[0].volume, far.directory / "two-faced")
    pool.refresh()
    return refused("server", "disk", "grow", "raw", "disk", "--size", "8M")(far)


def verify_a_wrong_one(far):
    (name,) = [each for each in far.files(far.bases) if each.endswith(".qcow2")]
    words = ("dd", "if=/dev/urandom", f"of={far.bases}/{name}", "bs=1", "count=8", "seek=300000")
    far.host.run(*words, "conv=notrunc")
    found = far.run("cache", "verify", "--all")
    assert (found.returncode, "cannot be opened here" in found.stdout) == (1, True)
    assert name in far.files(far.bases)
    return REFUSED


WALK = {
    "server create": created("web", "qcow2"),
    "server create with a kernel": create_with_a_kernel,
    "server create from a raw template": created("raw", "raw", disk=MiB),
    "server create of a ploop disk": create_a_ploop_disk,
    "server stop": done("server", "stop", "web", "--force"),
    "server start": done("server", "start", "web"),
    "server reboot": done("server", "reboot", "web", "--timeout", "0"),
    "server console": open_console,
    "server console --log": done("server", "console", "web", "--log"),
    "server disk add": done("server", "disk", "add", "web", "--size", "4M"),
    "server disk grow": done("server", "disk", "grow", "web", "disk", "--size", "8M"),
    "server snapshot of a running server": done("server", "snapshot", "web", "live"),
    "server snapshot": snapshot_off,
    "server disk remove": done("server", "disk", "remove", "web", "disk.data0"),
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


def test_the_page_says_what_happens(far, micro_guest):
    page = said()
    assert set(page) == set(WALK)
    (far.directory / "two-faced").write_bytes(two_faced(micro_guest, "/etc/passwd"))
    for format in ("qcow2", "raw", "vmdk"):
        add(far, micro_guest, format)
    for what, act in WALK.items():
        assert (what, act(far)) == (what, page[what])
