"""Image to template: complete and inspected, or not there at all."""

import os
import stat
from dataclasses import replace

import pytest

from millpond.errors import ImageRefused, TemplateInUse, VolumeExists
from millpond.images.intake import Intake
from millpond.model.formats import DiskFormat
from millpond.model.names import template_name
from millpond.model.server import Content
from millpond.model.sizes import MiB
from millpond.model.template import Prepared
from millpond.system import mkfs
from millpond.templates.downloading import DownloadingTemplateImagehandler
from millpond.templates.handler import HandlerContext
from millpond.templates.store import LocalTemplates
from tests.support.millpond import converted


@pytest.fixture
def host(millpond):
    return millpond.host()


@pytest.fixture
def image(host, micro_guest, workdir):
    return Intake(host.shared.images_directory).add(
        converted(micro_guest, "qcow2", workdir), name="guest"
    )


def test_a_template_is_named_as_nova_names_it(host, image, millpond):
    """B15, B16: raw under the SHA-1 of the id, other formats next to it with a suffix."""
    raw = host.handlers.chosen.fetch_image(image, DiskFormat.RAW)
    native = host.handlers.chosen.fetch_image(image, DiskFormat.QCOW2)
    assert raw.volume == template_name(image.id, DiskFormat.RAW)
    assert native.volume == f"{raw.volume}.qcow2"
    assert sorted(os.listdir(millpond.bases)) == [raw.volume, native.volume]
    assert (raw.prepared, native.prepared) == (Prepared.CONVERSION, Prepared.HARD_LINK)
    assert (raw.digest, native.digest) == (None, image.digest)
    assert raw.virtual_size == native.virtual_size == MiB


def test_both_are_roots_read_only_and_known_to_libvirt(host, image, millpond, connection):
    for format in (DiskFormat.RAW, DiskFormat.QCOW2):
        template = host.handlers.chosen.fetch_image(image, format)
        status = os.stat(millpond.bases / template.volume)
        assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (0, 0o444)
    pool = connection.storagePoolLookupByName("nova-base-images-pool")
    assert sorted(pool.listVolumes()) == sorted(os.listdir(millpond.bases))


def test_the_converted_bytes_are_the_guests(host, image, millpond, micro_guest):
    raw = host.handlers.chosen.fetch_image(image, DiskFormat.RAW)
    assert (millpond.bases / raw.volume).read_bytes() == micro_guest.path.read_bytes()


@pytest.mark.parametrize("damage", ["record", "truncated", "gone", "record gone"])
def test_what_is_not_whole_is_made_anew(host, image, millpond, micro_guest, damage):
    """B31: no valid record, no template; a file of another length is none either."""
    template = host.handlers.chosen.fetch_image(image, DiskFormat.RAW)
    path = millpond.bases / template.volume
    record = millpond.bases.with_name("_base.millpond") / "records" / f"{template.volume}.json"
    if damage == "record":
        record.write_bytes(record.read_bytes()[:-20])
    elif damage == "truncated":
        path.chmod(0o644)
        os.truncate(path, 4096)
    elif damage == "gone":
        path.unlink()
    else:
        record.unlink()
        path.unlink()
    assert LocalTemplates(host.pools.base).find(template.volume) is None
    host.handlers.chosen.fetch_image(image, DiskFormat.RAW)
    assert path.read_bytes() == micro_guest.path.read_bytes()


def test_somebody_elses_file_is_neither_used_nor_replaced(host, image, millpond):
    host.pools.base.refresh()
    path = millpond.bases / template_name(image.id, DiskFormat.RAW)
    path.write_bytes(b"somebody's")
    with pytest.raises(VolumeExists):
        host.handlers.chosen.fetch_image(image, DiskFormat.RAW)
    assert path.read_bytes() == b"somebody's"


@pytest.mark.parametrize("format", ["raw", "qcow2"])
def test_a_base_that_nova_has_made_is_taken_over(host, millpond, micro_guest, workdir, format):
    """Of a raw image it is the same bytes; others Nova converts."""
    source = converted(micro_guest, format, workdir)
    image = Intake(host.shared.images_directory).add(source, name=format)
    path = _base(host, millpond, image, micro_guest.path.read_bytes())
    before = path.stat()
    template = host.handlers.chosen.fetch_image(image, DiskFormat.RAW)
    assert template.prepared is Prepared.ADOPTION
    assert template.digest == (image.digest if format == "raw" else None)
    after = path.stat()
    assert (after.st_ino, after.st_mtime) == (before.st_ino, before.st_mtime)
    assert (after.st_uid, stat.S_IMODE(after.st_mode)) == (0, 0o444)
    assert host.pools.base.find(template.volume)


@pytest.mark.parametrize("wrong", ["bytes", "length", "format", "time"])
def test_what_only_looks_like_a_base_is_left_alone(millpond, micro_guest, workdir, wrong):
    """And any, once the operator says that nothing of Nova's is left."""
    millpond.configure("images_type = libvirt-storage" if wrong == "time" else "")
    host = millpond.host()
    source = converted(micro_guest, "raw", workdir)
    image = Intake(host.shared.images_directory).add(source, name="raw")
    content = {
        "time": micro_guest.path.read_bytes(),
        "bytes": bytes(MiB),
        "length": micro_guest.path.read_bytes() + bytes(512),
        "format": converted(micro_guest, "qcow2", workdir).read_bytes().ljust(MiB, b"\0"),
    }[wrong]
    path = _base(host, millpond, image, content)
    with pytest.raises(VolumeExists):
        host.handlers.chosen.fetch_image(image, DiskFormat.RAW)
    assert path.read_bytes() == content


def test_so_is_a_swap_area_of_novas(host, millpond):
    name = host.blanks.name(Content.SWAP, MiB)
    path = _file(host, millpond, name, bytes(MiB))
    with pytest.raises(VolumeExists):
        host.blanks.fetch(Content.SWAP, MiB)
    mkfs.make_swap(path)
    assert host.blanks.fetch(Content.SWAP, MiB).prepared is Prepared.ADOPTION


def _base(host, millpond, image, content):
    return _file(host, millpond, template_name(image.id, DiskFormat.RAW), content)


def _file(host, millpond, name, content):
    """As Nova leaves one."""
    host.pools.base.refresh()
    path = millpond.bases / name
    path.write_bytes(content)
    path.chmod(0o644)
    return path


def test_a_template_goes_when_nothing_stands_on_it(host, image, millpond):
    millpond.ok("server", "create", "web", "--image", "guest", "--memory", "32M", "--no-start")
    with pytest.raises(TemplateInUse, match="is the base of web"):
        host.handlers.chosen.remove_image(image.id, DiskFormat.RAW)
    millpond.ok("server", "delete", "web")
    host.handlers.chosen.remove_image(image.id, DiskFormat.RAW)
    host.handlers.chosen.remove_image(image.id, DiskFormat.RAW)
    assert os.listdir(millpond.bases) == []


class Stream:
    """The catalogue's images as a service far away would give them: by stream only."""

    def __init__(self, catalogue, spoil=None):
        self._catalogue, self._spoil = catalogue, spoil or (lambda chunks: chunks)

    def describe(self, id):
        return self._catalogue.describe(id)

    def local_file(self, _image):
        return None

    def open(self, image):
        stream = self._catalogue.open(image)
        return replace(stream, chunks=lambda offset: self._spoil(stream.chunks(offset)))


def downloading(host, spoil=None):
    context = HandlerContext(
        store=LocalTemplates(host.pools.base),
        images=Stream(host.shared.catalogue, spoil),
        users=host.template_uses.users,
    )
    return DownloadingTemplateImagehandler(context)


def test_a_stream_is_received_and_converted(host, image, millpond, micro_guest):
    done = []
    native = downloading(host).fetch_image(image, DiskFormat.QCOW2)
    raw = downloading(host).fetch_image(image, DiskFormat.RAW, done.append)
    assert sum(done) == image.size
    assert (native.prepared, raw.prepared) == (Prepared.DOWNLOAD, Prepared.CONVERSION)
    assert (millpond.bases / raw.volume).read_bytes() == micro_guest.path.read_bytes()


def test_a_format_that_is_kept_is_written_once(millpond, make_filesystem, micro_guest, workdir):
    """B45, counted by the kernel on the device beneath."""
    where = make_filesystem("ext4", 512 * MiB)
    millpond.configure(
        f"base_images_pool_path = {where.path}/_base\ndisks_pool_path = {where.path}/disks"
    )
    big = workdir / "big.raw"
    big.write_bytes(micro_guest.path.read_bytes() + os.urandom(128 * MiB))
    millpond.ok("image", "add", big)
    host = millpond.host()
    image = host.shared.catalogue.get("big")
    handler = downloading(host)
    os.sync()
    before = where.bytes_written()
    template = handler.fetch_image(image, DiskFormat.RAW)
    os.sync()
    assert template.prepared is Prepared.DOWNLOAD
    assert 128 * MiB <= where.bytes_written() - before <= 1.02 * image.size


def shortened(chunks):
    return (chunk[:-1000] for chunk in chunks)


def changed(chunks):
    return (chunk[:-1] + bytes([chunk[-1] ^ 1]) for chunk in chunks)


def broken(chunks):
    yield next(chunks)[:4096]
    raise ConnectionResetError("the other side hung up")


@pytest.mark.parametrize("spoil", [shortened, changed, broken])
def test_a_stream_that_is_not_the_image_leaves_nothing(host, image, millpond, spoil):
    """B45"""
    with pytest.raises((ImageRefused, OSError)):
        downloading(host, spoil).fetch_image(image, DiskFormat.QCOW2)
    assert os.listdir(millpond.bases) == []
    beside = millpond.bases.with_name("_base.millpond")
    assert [path for path in beside.rglob("*") if path.is_file()] == []
    assert host.handlers.chosen.fetch_image(image, DiskFormat.QCOW2).prepared is Prepared.HARD_LINK


def test_a_disk_of_another_size_than_its_source_says_is_refused(host, image, millpond):
    """The server's disk would have been planned too small for it."""
    claimed = replace(image, virtual_size=image.virtual_size // 2)
    with pytest.raises(ImageRefused, match="and its source says"):
        downloading(host).fetch_image(claimed, DiskFormat.QCOW2)
    assert os.listdir(millpond.bases) == []


@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_raw_disks_are_reflinks_where_the_file_system_has_them(
    millpond, make_filesystem, micro_guest, workdir, kind
):
    """B30: 64 MiB of data, and next to nothing written for each disk."""
    where = make_filesystem(kind, 512 * MiB)
    (where.path / "state").mkdir()
    millpond.configure(
        f"images_type_mapping = raw:raw\n"
        f"base_images_pool_path = {where.path}/_base\ndisks_pool_path = {where.path}/disks"
    )
    big = workdir / "big.raw"
    big.write_bytes(micro_guest.path.read_bytes() + os.urandom(63 * MiB))
    millpond.ok("image", "add", big)
    words = ("--image", "big", "--memory", "32M")
    millpond.ok("server", "create", "first", *words, "--no-start")
    os.sync()
    before = where.bytes_written()
    made = millpond.json("server", "create", "second", *words)
    assert micro_guest.marker in millpond.wait_for_console(made["id"], "READY")
    os.sync()
    assert where.bytes_written() - before < 8 * MiB


def test_a_damaged_template_that_disks_stand_on_is_never_taken_away(
    host, image, millpond, micro_guest
):
    """Its preparation fails: the file that was there stays, and is replaced by the next one."""
    template = host.handlers.chosen.fetch_image(image, DiskFormat.QCOW2)
    record = millpond.bases.with_name("_base.millpond") / "records" / f"{template.volume}.json"
    record.write_bytes(b"damaged")
    for spoil in (changed, broken):
        with pytest.raises((ImageRefused, OSError)):
            downloading(host, spoil).fetch_image(image, DiskFormat.QCOW2)
    assert (millpond.bases / template.volume).exists()
    assert host.handlers.chosen.fetch_image(image, DiskFormat.QCOW2).digest == image.digest
