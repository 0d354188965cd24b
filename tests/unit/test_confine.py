"""Tools that read bytes which are not ours can reach nothing but what they were handed."""

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from millpond.doctor import confinement
from millpond.doctor.finding import Level
from millpond.errors import ToolFailed
from millpond.model.formats import DiskFormat
from millpond.model.sizes import GiB, MiB
from millpond.system import confine, qemu_img
from millpond.system.process import Handed, Limits, run
from tests.support import intruder
from tests.support.processes import children, name_of
from tests.support.waiting import wait_for

_USER = 2
"""Somebody who is not root: Debian's bin."""
_NO_NAMESPACES = "root that may make no namespace"
_LEVELS = {
    "root": ["setpriv", "--"],
    _NO_NAMESPACES: ["setpriv", "--bounding-set=-sys_admin", "--"],
    "a user": ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups", "--"],
}
_START = "import sys; sys.path.append(sys.argv[1]); import confine; confine.main(sys.argv[2:])"
_CREATE_RULESET = 444  # linux/landlock.h

_WITHOUT = """
import ctypes, struct
from millpond.doctor import confinement
deny = lambda number: [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050001)]
code = [(0x20, 0, 0, 0), *deny(272), *deny(97), *deny(444), (0x06, 0, 0, 0x7FFF0000)]
packed = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in code))
libc = ctypes.CDLL(None)
libc.prctl(38, 1, 0, 0, 0)
libc.prctl(22, 2, struct.pack("HP", len(code), ctypes.addressof(packed)), 0, 0)
print(*[each.level for each in confinement.look(None)])
"""
"""Where seccomp refuses unshare (x86-64, arm64) and Landlock, as a container may."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="files of several users: run as root")


@dataclass(frozen=True, kw_only=True)
class Scene:
    directory: Path
    port: int

    @property
    def intruder(self):
        names = ("handed", "template", "other", "elsewhere")
        paths = [str(self.directory / name) for name in names]
        tool = ["/usr/bin/python3", str(self.directory / "intruder.py"), *paths]
        return [*tool, str(self.port), str(os.getpid()), str(self.directory / "id")]

    @property
    def handed(self):
        reads = [self.directory / name for name in ("template", "intruder.py", "id")]
        return Handed(reads=reads, writes=[self.directory / "handed"])


@pytest.fixture
def scene():
    """A disk to write to, a template, another's disk that everybody may read and write, a program
    that makes anybody root, and a listener."""
    with (
        tempfile.TemporaryDirectory() as name,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        directory = Path(name)
        directory.chmod(0o777)
        for disk, mode in {"handed": 0o600, "template": 0o444, "other": 0o666}.items():
            (directory / disk).write_bytes(b"disk")
            (directory / disk).chmod(mode)
        shutil.copy("/usr/bin/id", directory)
        (directory / "id").chmod(0o4755)
        shutil.copy(intruder.__file__, directory)
        shutil.copy(confine.__file__, directory)
        yield Scene(directory=directory, port=listener.getsockname()[1])


def test_a_tool_does_nothing_but_its_work(scene):
    report, ids = _parsed(run(scene.intruder, handed=scene.handed))
    assert report["done"] == []
    assert report["works"] == {"read": True, "write": True, "thread": True}
    assert set(report["ids"]) == {confine.NOBODY}
    assert ids == str(confine.NOBODY)


def test_the_same_tool_would_do_all_of_it_unconfined(scene):
    report, _ = _parsed(run(scene.intruder))
    assert len(report["done"]) == 13


@pytest.mark.parametrize("level", _LEVELS)
def test_it_is_confined_whoever_starts_it(scene, level):
    if level == _NO_NAMESPACES and ctypes.CDLL(None).syscall(_CREATE_RULESET, None, 0, 1) < 1:
        pytest.skip("this kernel has no Landlock: boot with lsm=landlock,…")
    if level == "a user":
        os.chown(scene.directory / "handed", _USER, _USER)
    facts = [f"parent={os.getpid()}", f"memory={GiB}", "cpu=60", "network=0"]
    facts += [f"write={each}" for each in scene.handed.writes]
    facts += [f"read={each}" for each in scene.handed.reads]
    script = ["/usr/bin/python3", "-I", "-S", "-c", _START, str(scene.directory), *facts, "--"]
    words = [*_LEVELS[level], *script, *scene.intruder]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    report, ids = _parsed(done.stdout)
    assert report["done"] == (["have a capability"] if level == _NO_NAMESPACES else [])
    assert report["works"] == {"read": True, "write": True, "thread": True}
    assert set(report["ids"]) == {_USER if level == "a user" else confine.NOBODY}
    assert ids != "0"


@pytest.mark.parametrize("writable", [False, True])
def test_a_device_is_handed_over_like_a_file(scene, writable):
    (scene.directory / "handed").write_bytes(bytes(MiB))
    words = ["losetup", "--find", "--show", scene.directory / "handed"]
    device = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    handed = Handed(**{"writes" if writable else "reads": [Path(device)]})
    try:
        assert len(run(["head", "-c", "512", device], handed=handed)) == 512
        written = "ok"
        try:
            run(["dd", "if=/usr/bin/id", f"of={device}", "count=1", "conv=notrunc"], handed=handed)
        except ToolFailed as error:
            written = error.reason
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
    assert written == "ok" if writable else "Permission denied" in written


def test_qemu_img_follows_no_header_to_another_file(scene):
    """Were there an image that inspection let pass."""
    image, target = scene.directory / "image", scene.directory / "target"
    words = [
        "qemu-img",
        "create",
        "-q",
        "-f",
        "qcow2",
        "-F",
        "raw",
        "-b",
        scene.directory / "other",
    ]
    subprocess.run([*words, image, str(MiB)], check=True)
    with pytest.raises(ToolFailed, match=r"Could not open '.*/other': No such file"):
        qemu_img.convert(image, DiskFormat.QCOW2, target, DiskFormat.RAW)


def test_a_file_that_its_owner_may_only_read_is_written_to_as_root_would(scene):
    (scene.directory / "handed").chmod(0o400)
    run(
        ["dd", "if=/usr/bin/id", f"of={scene.directory / 'handed'}", "count=1"],
        handed=scene.handed,
    )
    assert (scene.directory / "handed").stat().st_size == 512


def test_doctor_finds_tools_confined():
    assert [each.level for each in confinement.look(None)] == [Level.OK]


def test_doctor_warns_of_a_host_that_confines_nothing():
    done = subprocess.run([sys.executable, "-c", _WITHOUT], capture_output=True, text=True)
    assert done.stdout == "warning\n", done.stderr


def test_a_tool_cannot_take_more_memory_than_it_may():
    words = ["python3", "-c", "x = bytearray(400 * 1024 * 1024)"]
    with pytest.raises(ToolFailed, match="MemoryError"):
        run(words, Limits(memory=200 * MiB), Handed())


def test_a_tool_that_computes_for_ever_is_killed():
    with pytest.raises(ToolFailed, match="killed by signal"):
        run(["sh", "-c", "while :; do :; done"], Limits(cpu_seconds=1), Handed())


def test_a_tool_ends_with_whoever_started_it():
    code = "from millpond.system.process import *; run(['sleep', '1000'], handed=Handed())"
    starter = subprocess.Popen([sys.executable, "-c", code])
    tool = wait_for(lambda: children(starter.pid), 30)[0]
    wait_for(lambda: name_of(tool) == "sleep", 30)
    starter.kill()
    starter.wait()
    wait_for(lambda: name_of(tool) is None, 30)


def test_a_tool_whose_starter_has_ended_already_does_not_start(scene):
    """It is not told of that death any more."""
    facts = ["parent=1", f"memory={GiB}", "cpu=60", "network=0"]
    words = ["/usr/bin/python3", "-I", "-S", "-c", _START, str(scene.directory), *facts, "--"]
    done = subprocess.run([*words, "echo", "started"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (126, ""), done.stderr


def test_only_a_tool_that_needs_the_network_gets_it(scene):
    handed = Handed(reads=scene.handed.reads, writes=scene.handed.writes, network=True)
    report, _ = _parsed(run(scene.intruder, handed=handed))
    assert report["done"] == ["connect"]


def test_what_is_missing_is_said_by_the_tool():
    with pytest.raises(ToolFailed, match="No such file"):
        run(["cat", "/no/such/disk"], handed=Handed(reads=[Path("/no/such/disk")]))


def test_a_missing_tool_is_a_clear_error():
    with pytest.raises(ToolFailed, match="no-such-tool: No such file"):
        run(["no-such-tool"], handed=Handed())


def _parsed(output):
    """What the tool did, and who the program is that would make it root, if it may run that."""
    report, *ids = output.splitlines()
    return json.loads(report), "".join(ids)
