"""Nothing is probed: a guest that writes the header of another format onto its raw disk gains
nothing by it, whatever is done to its server (trap 2, trap 3)."""

import os
import subprocess

import pytest

from millpond.model.sizes import MiB
from millpond.servers.domain_xml import disk_xml
from tests.support.guest_ticks import wait_for_ticks
from tests.support.two_faced import two_faced

SECRET = b"the content of a file of the host"
BY = {
    "backing file": lambda path: str(path),
    "json": lambda path: f'json:{{"driver":"raw","file":{{"driver":"file","filename":"{path}"}}}}',
    "data file": lambda path: str(path),
}
full = pytest.mark.full


class Attack:
    """A server whose disk names a decoy, and everything that must not have happened to it."""

    def __init__(self, millpond, decoy, connection):
        self.millpond = millpond
        self.decoy = decoy
        self.connection = connection
        self.before = self.facts()

    def facts(self):
        found = self.decoy.stat()
        return (
            found.st_uid,
            found.st_gid,
            found.st_mode,
            found.st_mtime_ns,
            self.decoy.read_bytes(),
        )

    def check(self, doing):
        """After each act, and after libvirt has looked at all volumes once more."""
        for pool in self.connection.listAllStoragePools():
            pool.refresh()
        assert self.facts() == self.before, doing
        holding = [path for path in self.millpond.state.rglob("*") if holds_the_secret(path)]
        assert holding == [], doing
        self.check_the_domains()

    def check_the_domains(self):
        """As they run and as they are defined: what the record says, to the last empty layer."""
        host = self.millpond.host()
        for server in host.records.all():
            chains = {each.role: host.disks.chain(each) for each in server.disks}
            recorded = [disk_xml(server, each, chains[each.role]) for each in server.disks]
            for defined in (False, True):
                found = host.domains.description(server.id, defined=defined)
                assert list(found.disks) == recorded

    def ok(self, *words):
        self.millpond.ok("server", *words)
        self.check(words)

    def check_the_size(self, size):
        """Of the disk itself: its other header may say what it likes."""
        (disk, *_) = self.millpond.server("web").disks
        assert (disk.size, (self.millpond.disks / disk.volume).stat().st_size) == (size, size)


def holds_the_secret(path):
    return path.is_file() and SECRET[:16] in path.read_bytes()


@pytest.fixture(params=["backing file", pytest.param("json", marks=full), "data file"])
def attack(request, millpond, micro_guest, workdir, connection):
    decoy = workdir / "decoy"
    decoy.write_bytes(SECRET.ljust(64, b"!") * (MiB // 64))
    decoy.chmod(0o600)
    os.chown(decoy, 0, 0)
    millpond.configure("images_type_mapping = raw:raw")
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    words = ("--image", "guest", "--memory", "32M", "--network", "none", "--no-start")
    volume = millpond.json("server", "create", "web", *words)["disks"][0]["volume"]
    name = BY[request.param](decoy)
    content = two_faced(micro_guest, name, data_file=request.param == "data file")
    with open(millpond.disks / volume, "r+b") as disk:
        disk.write(content)
    assert SECRET in to_whoever_probes(millpond.disks / volume, workdir)
    return Attack(millpond, decoy, connection)


def to_whoever_probes(path, workdir):
    """What somebody sees who does not say what the disk is: the trap works."""
    seen = workdir / "seen"
    subprocess.run(["qemu-img", "convert", "-O", "raw", path, seen], check=True)
    content = seen.read_bytes()
    seen.unlink()
    return content


def test_a_disk_that_names_a_file_of_the_host(attack, millpond, micro_guest):
    id = millpond.server("web").id
    attack.check("refresh")
    attack.ok("snapshot", "web", "cold")
    attack.ok("resize", "web", "--disk", "2M")
    attack.check_the_size(2 * MiB)
    attack.ok("disk", "add", "web", "--size", "1M")
    attack.ok("start", "web")
    millpond.wait_for_console(id, "TICK 0001")
    attack.ok("snapshot", "web", "live")
    attack.ok("snapshot", "web", "compressed", "--compress")
    attack.ok("resize", "web", "--disk", "3M")
    attack.check_the_size(3 * MiB)
    attack.ok("disk", "add", "web", "--size", "1M")
    attack.ok("reboot", "web", "--hard")
    assert micro_guest.marker in millpond.wait_for_console(id, "BOOTS 0002")
    attack.ok("stop", "web", "--force")
    attack.ok("resize", "web", "--disk", "4M")
    attack.check_the_size(4 * MiB)
    attack.ok("start", "web")
    millpond.wait_for_console(id, "BOOTS 0003")
    millpond.run("doctor", "--mend")
    attack.check("doctor")
    for image in ("cold", "live", "compressed"):
        content = flat(millpond, image)
        assert content[:4] == b"QFI\xfb"  # it is what the guest wrote
        assert SECRET not in content
    attack.ok("delete", "web")


def flat(millpond, image):
    path = millpond.directory / f"{image}.qcow2"
    millpond.ok("image", "save", image, path)
    words = ["qemu-img", "convert", "-f", "qcow2", "-O", "raw", path, path.with_suffix(".raw")]
    subprocess.run(words, check=True)
    return path.with_suffix(".raw").read_bytes()


@pytest.mark.parametrize(
    "mapping", ["qcow2:qcow2", *(pytest.param(each, marks=full) for each in ("", "qcow2:raw"))]
)
def test_what_becomes_of_its_snapshots(attack, millpond, micro_guest, mapping):
    """Their content begins like that of another format, in whatever they are made into."""
    id = millpond.server("web").id
    attack.ok("start", "web")
    millpond.wait_for_console(id, "TICK 0001")
    attack.ok("snapshot", "web", "live")
    code, message = millpond.fails("server", "snapshot", "web", "raw", "--format", "raw")
    assert (code, "refused" in message) == (5, True)  # whoever opens it next might look
    attack.check("a snapshot that is refused")
    wait_for_ticks(millpond, id)
    millpond.configure(f"images_type_mapping = {mapping}")
    words = ("--memory", "32M", "--network", "none", "--image")
    attack.ok("create", "again", *words, "live")
    again = millpond.server("again").id
    assert micro_guest.marker in millpond.wait_for_console(again, "BOOTS 0002")
    attack.ok("snapshot", "again", "of a clone")
    attack.ok("reboot", "again", "--hard")
    millpond.wait_for_console(again, "BOOTS 0003")
