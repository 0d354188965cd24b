"""Servers to one file and back."""

import hashlib
import io
import json
import os
import re
import stat
import subprocess
import tarfile

import pytest

from millpond.records import codec
from millpond.records.journal import StepMoment
from tests.support import server_with_data
from tests.support.guest_ticks import chains
from tests.support.killer import kill_at
from tests.support.millpond import COMMAND
from tests.support.server_with_data import PATTERN, read

MANIFEST = "millpond-server.json"


@pytest.fixture(params=["qcow2", "raw"])
def web(request, millpond, micro_guest, workdir):
    return server_with_data.make(
        millpond, micro_guest, workdir, request.param, "--network", "user"
    )


@pytest.mark.parametrize("state", ["running", "stopped"])
def test_an_export_is_imported_as_the_same_server(millpond, web, workdir, connection, state):
    if state == "stopped":
        millpond.ok("server", "stop", "web", "--force")
    before = chains(connection.lookupByName("web"))
    told = millpond.json("server", "export", "web", workdir / "web.tar")
    assert told["consistency"] == ("crash-consistent" if state == "running" else "stopped")
    assert chains(connection.lookupByName("web")) == before
    assert (workdir / "web.tar").stat().st_mode & 0o777 == 0o600
    mac = millpond.server("web").networks[0].mac
    millpond.ok("server", "delete", "web", "--yes")
    millpond.ok("image", "remove", "guest")
    made = millpond.json("server", "import", workdir / "web.tar")
    assert (made["id"], made["networks"][0]["mac"]) == (web, mac)
    millpond.wait_for_console(web, "BOOTS 0002")
    millpond.ok("server", "stop", "web", "--force")
    volumes = {each["role"]: millpond.disks / each["volume"] for each in made["disks"]}
    assert read(volumes["disk.data0"], workdir)[: len(PATTERN)] == PATTERN
    look(millpond, ["web"], 3)
    millpond.ok("doctor")


@pytest.fixture
def archive(millpond, micro_guest, workdir):
    """Of a server that is still there."""
    server_with_data.make(millpond, micro_guest, workdir, "qcow2", "--network", "user")
    millpond.ok("server", "export", "web", workdir / "web.tar", "--compress")
    return workdir / "web.tar"


def look(millpond, servers, volumes):
    assert [each["name"] for each in millpond.json("server", "list")] == servers
    assert len(list(millpond.disks.iterdir())) == volumes
    assert list((millpond.state / "images" / "incoming").iterdir()) == []


def test_beside_its_original_it_is_another_server(millpond, archive):
    code, message = millpond.fails("server", "import", archive)
    assert (code, "already a server named 'web'" in message) == (4, True), message
    look(millpond, ["web"], 3)
    original = millpond.server("web")
    made = millpond.json("server", "import", archive, "--name", "again", "--no-start")
    assert made["id"] != original.id
    assert made["networks"][0]["mac"] != original.networks[0].mac
    assert made["state"] == "stopped"
    look(millpond, ["again", "web"], 6)
    millpond.ok("server", "start", "again")
    millpond.wait_for_console(made["id"], "BOOTS 0002")


def test_through_a_pipe(millpond, archive):
    command = [str(COMMAND), "--config-file", str(millpond.config), "server"]
    export = subprocess.Popen([*command, "export", "web", "-"], stdout=subprocess.PIPE)
    words = [*command, "import", "-", "--name", "again", "--json"]
    done = subprocess.run(words, stdin=export.stdout, stdout=subprocess.PIPE, check=True)
    assert export.wait(60) == 0
    millpond.wait_for_console(json.loads(done.stdout)["id"], "BOOTS 0002")


def test_bad_targets_are_refused(millpond, archive, workdir):
    for code, sentence, words in (
        (4, "already a file named", ("web", archive)),
        (2, "is a directory", ("web", workdir)),
        (2, "cannot be written", ("web", workdir / "gone" / "web.tar")),
        (2, "standard output has the archive", ("web", "-", "--json")),
        (3, "there is no server 'gone'", ("gone", workdir / "gone.tar")),
    ):
        found, message = millpond.fails("server", "export", *words)
        assert (found, sentence in message) == (code, True), message
    assert sorted(each.name for each in workdir.glob("*.tar")) == ["web.tar"]
    look(millpond, ["web"], 3)


def test_force_replaces_only_regular_files(millpond, archive, workdir):
    """As root it would replace /dev/null for everybody."""
    os.mkfifo(workdir / "pipe")
    for target in ("/dev/null", workdir / "pipe"):
        code, message = millpond.fails("server", "export", "web", target, "--force")
        assert (code, "no regular file" in message) == (2, True), message
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    done = millpond.run("server", "export", "web", archive, "--force")
    assert (done.returncode, "not exported" in done.stderr) == (0, False), done.stderr


def test_what_an_export_leaves_out_is_said(millpond, micro_guest, workdir):
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    words = ("--image", "guest", "--memory", "32M", "--network", "user", "--publish", "20022:22")
    millpond.ok("server", "create", "web", *words, "--no-start")
    for target in ("-", workdir / "web.tar"):
        command = [str(COMMAND), "--config-file", str(millpond.config), "server", "export", "web"]
        done = subprocess.run([*command, target], capture_output=True, check=True)
        assert b"not exported: published ports (" in done.stderr


def members(path):
    with tarfile.open(path) as tar:
        return [(each.name, tar.extractfile(each).read()) for each in tar]


def write(path, found):
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for name, content in found:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def changed(path, target, change):
    """With another manifest, and perhaps other disks."""
    (_, sealed), *disks = members(path)
    manifest, disks = json.loads(codec.unseal(sealed, path)), dict(disks)
    change(manifest, disks)
    write(target, [(MANIFEST, codec.seal(json.dumps(manifest).encode())), *disks.items()])


def put(manifest, disks, role, content):
    (disk,) = [each for each in manifest["disks"] if each["role"] == role]
    name = f"{role}.{disk['format']}"
    disk["size"], disk["sha512"] = len(content), hashlib.sha512(content).hexdigest()
    disks[name] = content


def backed(manifest, disks):
    words = ["qemu-img", "create", "-q", "-f", "qcow2", "-u", "-F", "raw", "-b", "/etc/passwd"]
    subprocess.run([*words, "/tmp/backed.qcow2", "1M"], check=True)
    with open("/tmp/backed.qcow2", "rb") as file:
        put(manifest, disks, "disk", file.read())


def set_in(*keys, value):
    def change(manifest, _disks):
        found = manifest
        for each in keys[:-1]:
            found = found[each]
        found[keys[-1]] = value

    return change


def without_disk(manifest, disks):
    disks.pop("disk.data0.qcow2")


def swapped(manifest, disks):
    disks["disk.qcow2"], disks["disk.data0.qcow2"] = disks["disk.data0.qcow2"], disks["disk.qcow2"]


HOSTILE = {
    "a newer schema": (set_in("schema", value=2), "a newer Millpond wrote it"),
    "a backing file": (backed, "backing file"),
    "another image": (swapped, "is not as long|is not the one that was stated"),
    "a disk is missing": (without_disk, "ends before|cut off"),
    "a role that is a path": (
        set_in("server", "disks", 0, "role", value="../../etc/x"),
        "is invalid",
    ),
    "a disk twice": (set_in("server", "disks", 1, "role", value="disk"), "is invalid"),
    "an id that is a path": (set_in("server", "id", value="../x"), "is invalid"),
    "a name that is a path": (set_in("server", "name", value="a/b"), "is invalid"),
    "a MAC that is more": (
        set_in("server", "networks", 0, "mac", value="52:54:00:00:00:01,addr=1"),
        "is invalid",
    ),
    "a label that moves the cursor": (
        set_in("server", "labels", value={"tier": "\x1b[2J"}),
        "is invalid",
    ),
    "no memory": (set_in("server", "flavor", "memory", value=-1), "is invalid"),
    "an endless disk": (set_in("server", "disks", 0, "size", value=1 << 60), "is invalid"),
    "a disk larger than it": (set_in("disks", 0, "virtual_size", value=1 << 40), "does not fit"),
    "another format": (set_in("disks", 0, "format", value="vmdk"), "nonsense|damaged"),
    "a machine that is more": (
        set_in("server", "hardware", "machine", value="pc,accel=x"),
        "is invalid",
    ),
}


def test_a_hostile_archive_is_refused_and_leaves_nothing(millpond, archive, workdir):
    target = workdir / "hostile.tar"
    for name, (change, sentence) in HOSTILE.items():
        changed(archive, target, change)
        code, message = millpond.fails("server", "import", target, "--name", "again")
        assert (code, bool(re.search(sentence, message))) == (5, True), (name, message)
    look(millpond, ["web"], 3)


def test_a_damaged_archive_is_refused_and_leaves_nothing(millpond, archive, workdir):
    whole, target = archive.read_bytes(), workdir / "damaged.tar"
    end = sum(512 + -(-len(each) // 512) * 512 for _, each in members(archive))
    for length in (0, 100, 512, 5000, end // 2, end - 1024):
        target.write_bytes(whole[:length])
        code, message = millpond.fails("server", "import", target, "--name", "again")
        assert (code, "it is cut off" in message) == (5, True), (length, message)
    for place in (100, 700, 5000, end // 2, end - 1500):
        content = bytearray(whole)
        content[place] ^= 0xFF
        target.write_bytes(content)
        code, message = millpond.fails("server", "import", target, "--name", "again")
        assert code == 5, (place, message)
    target.write_bytes(b"not a tar at all".ljust(4096, b"."))
    code, message = millpond.fails("server", "import", target)
    assert (code, "no archive of a server" in message) == (5, True), message
    code, message = millpond.fails("server", "import", workdir / "gone.tar")
    assert (code, "cannot read" in message) == (3, True), message
    look(millpond, ["web"], 3)


def test_what_an_archive_says_makes_nothing_listen_beyond_this_machine(millpond, archive, workdir):
    def open_up(manifest, _disks):
        manifest["server"]["devices"]["vnc"] = {"address": "0.0.0.0", "port": 5999}
        port = {"address": "0.0.0.0", "port": 20022, "guest": 22, "protocol": "tcp"}
        manifest["server"]["networks"][0]["ports"] = [port]

    changed(archive, workdir / "open.tar", open_up)
    words = ("--name", "again", "--no-start")
    made = millpond.json("server", "import", workdir / "open.tar", *words)
    assert made["devices"]["vnc"] == {"address": "127.0.0.1", "port": 0}
    assert made["networks"][0]["ports"] == []


@pytest.mark.parametrize(
    ("verb", "step", "moment"),
    [
        ("disk", "make", StepMoment.END),
        pytest.param("create", "disks", StepMoment.BEGIN, marks=pytest.mark.full),
        pytest.param("create", "domain", StepMoment.END, marks=pytest.mark.full),
        pytest.param("create", "start", StepMoment.BEGIN, marks=pytest.mark.full),
    ],
)
def test_killed_anywhere_an_import_leaves_nothing(millpond, archive, verb, step, moment):
    kill_at(millpond, verb, step, moment, "import", archive, "again")
    millpond.ok("doctor", "--repair")
    look(millpond, ["web"], 3)
