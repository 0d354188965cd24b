"""What an overlay holds, written into the disk below it while nobody runs on either."""

import subprocess
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from millpond.disks.backend import ImageFile
from millpond.disks.libvirt_storage import LibvirtStorage
from millpond.model.formats import Backend, DiskFormat
from millpond.model.layer import FileSource, Layer
from millpond.model.sizes import MiB
from millpond.model.volume import Volume
from tests.unit.samples import disk


class OnePool:
    """A directory whose files are volumes."""

    def __init__(self, directory):
        self.directory = directory

    def ensure(self, name):
        return SimpleNamespace(get=self.get, local=True)

    @property
    def base(self):
        return self.ensure("base")

    def get(self, name):
        path = str(self.directory / name)
        return Volume(pool="p", name=name, path=path, capacity=MiB, allocation=0)


def qemu_img(*words):
    subprocess.run(["qemu-img", *map(str, words)], check=True, capture_output=True)


def qemu_io(options, *commands):
    words = [word for command in commands for word in ("-c", command)]
    done = subprocess.run(
        ["qemu-io", "--image-opts", *words, options], check=True, capture_output=True, text=True
    )
    assert "failed" not in done.stdout, done.stdout


@pytest.fixture(params=["raw", "qcow2", "ploop"])
def below(request, tmp_path):
    """A disk full of ones, of each format that a backend writes."""
    format = DiskFormat(request.param)
    (tmp_path / "ones").write_bytes(b"\1" * MiB)
    target = tmp_path / "disk"
    qemu_img("convert", "-f", "raw", "-O", format.qemu, tmp_path / "ones", target)
    target.chmod(0o640)
    return replace(disk(format, overlay=False), backend=Backend(request.param), volume="disk")


@pytest.fixture
def above(below, tmp_path):
    """An overlay with twos in the middle, whose header names nothing."""
    qemu_img("create", "-f", "qcow2", tmp_path / "overlay", MiB)
    options = (
        f"driver=qcow2,file.driver=file,file.filename={tmp_path / 'overlay'},"
        f"backing.driver={below.format.qemu},backing.file.filename={tmp_path / 'disk'}"
    )
    qemu_io(options, "write -P 2 256k 128k")
    return Layer(source=FileSource(path=str(tmp_path / "overlay")), format=DiskFormat.QCOW2)


def content(path, format):
    flat = path.with_name("flat")
    qemu_img("convert", "-f", format.qemu, "-O", "raw", path, flat)
    return flat.read_bytes()


def test_the_disk_holds_both_and_is_the_same_file_to_others(below, above, tmp_path):
    storage = LibvirtStorage(below.backend, OnePool(tmp_path))
    overlay = (tmp_path / "overlay").read_bytes()
    before = (tmp_path / "disk").stat()
    for _ in ("once", "again, as after an interruption"):
        storage.merge(below, above)
        found = content(tmp_path / "disk", below.format)
        assert found == b"\1" * (256 * 1024) + b"\2" * (128 * 1024) + b"\1" * (640 * 1024)
        assert (tmp_path / "overlay").read_bytes() == overlay
    after = (tmp_path / "disk").stat()
    assert (after.st_uid, after.st_mode) == (before.st_uid, before.st_mode)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["disk", "flat", "ones", "overlay"]


def test_a_frozen_disk_is_read_while_qemu_has_it_open(below, tmp_path):
    """QEMU reopens raw and qcow2 for reading when an overlay comes above them; of a parallels
    image it keeps the write lock."""
    access = [] if below.format is DiskFormat.PLOOP else ["--read-only"]
    words = ["qemu-nbd", *access, "-t", "-f", below.format.qemu, "-k", tmp_path / "socket"]
    reader = subprocess.Popen([*words, tmp_path / "disk"])
    try:
        while not (tmp_path / "socket").exists():
            time.sleep(0.02)
        storage = LibvirtStorage(below.backend, OnePool(tmp_path))
        storage.extract(below, ImageFile(path=tmp_path / "out", format=DiskFormat.RAW))
        assert (tmp_path / "out").read_bytes() == b"\1" * MiB
    finally:
        reader.terminate()
        reader.wait()
