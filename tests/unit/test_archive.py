"""Archives of servers as bytes, and what is left of them when they are changed."""

import io
import tarfile
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from millpond.errors import ArchiveRefused, Unsupported
from millpond.model.callbacks import noop
from millpond.model.formats import DiskFormat
from millpond.model.server import Leftover
from millpond.records import codec
from millpond.servers.archive import (
    ArchivedDisk,
    ArchivedGuest,
    ArchiveReader,
    ArchiveWriter,
    Manifest,
)
from millpond.servers.config_drive import GuestConfiguration, read_drive
from millpond.servers.porting import read_server
from tests.unit.samples import server, server_with_a_kernel

CONTENT = b"what a disk holds" * 100
DISK = ArchivedDisk(
    role="disk",
    format=DiskFormat.RAW,
    size=len(CONTENT),
    virtual_size=len(CONTENT),
    sha512="0" * 128,
)
GUEST = ArchivedGuest(hostname="web", keys=("ssh-ed25519 AAAA",), user_data=b"\x00#!\xff")
MANIFEST = Manifest(server={"name": "web"}, disks=(DISK,), guest=GUEST)


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("archive") / "disk"
    path.write_bytes(CONTENT)
    target = io.BytesIO()
    writer = ArchiveWriter(target)
    writer.put_manifest(MANIFEST)
    writer.put_disk(DISK, path, noop)
    writer.finish()
    return target.getvalue()


def read(content: bytes) -> tuple[Manifest, bytes]:
    reader = ArchiveReader(io.BytesIO(content), "web.tar")
    manifest = reader.read_manifest()
    return manifest, b"".join(reader.read_disk(manifest.disks[0]))


def test_what_was_written_is_read(archive):
    assert read(archive) == (MANIFEST, CONTENT)


@given(some.data())
def test_one_that_is_cut_off_is_refused(archive, data):
    end = archive.rindex(b"disk holds") + len(b"disk holds")
    with pytest.raises(ArchiveRefused, match="cut off"):
        read(archive[: data.draw(some.integers(0, end - 1))])


@given(some.data())
def test_of_one_that_was_changed_no_word_is_believed(archive, data):
    """What disks hold is compared by its digest, later."""
    place = data.draw(some.integers(0, len(archive) - 1))
    changed = bytearray(archive)
    changed[place] ^= data.draw(some.integers(1, 255))
    try:
        manifest, _ = read(bytes(changed))
    except ArchiveRefused:
        return
    assert manifest == MANIFEST


@given(some.binary(max_size=2048))
def test_anything_else_is_refused(content):
    with pytest.raises(ArchiveRefused):
        read(content)


def test_a_name_or_a_kind_that_is_not_expected_is_refused(archive):
    for old, new in ((b"disk.raw", b"disk.rax"), (b"millpond-server.json", b"etc/passwd")):
        found = bytearray(archive)
        at = found.index(old)
        start = at // 512 * 512
        found[at : at + len(old)] = new.ljust(len(old), b"\0")
        found[start + 148 : start + 156] = b" " * 8
        found[start + 148 : start + 156] = b"%06o\0 " % sum(found[start : start + 512])
        with pytest.raises(ArchiveRefused, match="was expected"):
            read(bytes(found))


DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    "sealed",
    [
        DEEP,
        codec.seal(DEEP),
        codec.seal(b'{"schema": 1, "server": {"x": ' + DEEP),
        codec.seal(
            b'{"schema": 1, "disks": [], "server": {"x": ' + b"[" * 990 + b"]" * 990 + b"}}"
        ),
    ],
)
def test_a_manifest_that_is_nested_without_end_is_refused(sealed):
    member = tarfile.TarInfo("millpond-server.json")
    member.size = len(sealed)
    content = member.tobuf(tarfile.GNU_FORMAT) + sealed + bytes(-len(sealed) % 512)
    reader = ArchiveReader(io.BytesIO(content), "web.tar")
    with pytest.raises(ArchiveRefused):
        read_server(reader, reader.read_manifest())


WITH_KERNEL = replace(
    server_with_a_kernel(), flavor=replace(server().flavor, extra_specs={"hw:cpu": "shared"})
)


@pytest.mark.parametrize(
    "keys",
    [
        ("image", "name"),
        ("image", "id"),
        ("flavor", "name"),
        ("flavor", "extra_specs", "hw:cpu"),
        ("boot", "kernel", "name"),
        ("disks", 0, "pool"),
        ("created",),
    ],
)
@pytest.mark.parametrize("text", ["\x1b[2J", "a\nb", "\ufffe", "\x9b", "a" * 5000])
def test_text_that_is_not_for_people_is_refused(keys, text):
    found = codec.plain_server(WITH_KERNEL)
    reader = ArchiveReader(io.BytesIO(), "web.tar")
    assert read_server(reader, Manifest(server=found, disks=())).server.name == "web"
    part = found
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = text
    with pytest.raises(ArchiveRefused, match="invalid"):
        read_server(reader, Manifest(server=found, disks=()))


def test_what_it_left_on_other_hosts_is_not_believed():
    """It would be removed there."""
    left = Leftover(host="birch", disks=server().disks)
    found = codec.plain_server(replace(server(), leftovers=(left,)))
    reader = ArchiveReader(io.BytesIO(), "web.tar")
    assert read_server(reader, Manifest(server=found, disks=())).server.leftovers == ()


def test_what_a_config_drive_says_is_read_again():
    told = GuestConfiguration(hostname="web", keys=("ssh-ed25519 AAAA me",), user_data=b"#!x\n")
    assert read_drive(told.drive(server())) == told
    assert read_drive(GuestConfiguration().drive(server())).user_data == b""


@given(some.binary(max_size=4096))
def test_a_drive_that_is_not_ours_is_refused(content):
    with pytest.raises(Unsupported):
        read_drive(content)
