"""Where images lie, and how volumes are reached: what is told without asking anybody."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millpond.errors import ImageRefused, NotLinkable
from millpond.images.formats.inspection import Inspection
from millpond.libvirt.memory_pool import MemoryPool
from millpond.model.cloud import CloudAccess, LinkAccess
from millpond.model.formats import DiskFormat, ImageFormat
from millpond.model.image import Image
from millpond.model.layer import CephAccess, FileSource, IscsiSource, Layer, RbdSource
from millpond.model.names import ImageId
from millpond.model.template import Link, Prepared, Template
from millpond.model.transfer import Patience
from millpond.system import qemu_img
from millpond.templates.handler import LinkPreview
from millpond.templates.links.connections import AttachOptions, connect_link, is_for_the_host
from millpond.templates.links.linking import VolumeLinkingTemplateImagehandler
from millpond.templates.links.targets import LinkTargets
from millpond.templates.store import LocalTemplates
from tests.support.cinder_pages import LOCATION, saying
from tests.support.glance_pages import ID
from tests.support.keystone_pages import AUTH, PROJECT, offer_keystone
from tests.support.loopback import ADDRESS
from tests.support.web import serving

VOLUME = "0b9b0b5e-2a5b-4c55-8a5e-1d9a53a2e7f1"
LINK = Link(location=f"cinder://{VOLUME}")
IMAGE = Image(
    id=ImageId(ID),
    name="guest",
    format=ImageFormat.RAW,
    size=1,
    virtual_size=1,
    digest="",
    created="",
)
OURS = CephAccess(pool="vms", monitors=(("10.0.0.9", 6789),), user="nova", secret="s")
RBD = {
    "driver_volume_type": "rbd",
    "name": f"volumes/volume-{VOLUME}",
    "hosts": ["10.0.0.1", "[fd00::2]"],
    "ports": ["3300", "6789"],
    "auth_username": "cinder",
    "secret_uuid": "theirs",
}
ISCSI = {
    "driver_volume_type": "iscsi",
    "target_portal": "[fd00::1]:3260",
    "target_iqn": "iqn.2010-10.org.openstack:volume",
    "target_lun": 1,
}
CHAP = {**ISCSI, "auth_method": "CHAP", "auth_password": "secret"}
NFS = {"driver_volume_type": "nfs", "export": "10.0.0.1:/ponds", "name": "volume", "format": "raw"}


def options(ceph: CephAccess | None = None, initiator: str = "") -> AttachOptions:
    """The host names a device after the volume's kind."""
    return AttachOptions(
        ceph=ceph,
        initiator=initiator,
        connect=lambda told: FileSource(path=f"/dev/{told['driver_volume_type']}"),
    )


def cloud(url: str, auth: Mapping[str, str] | None = None) -> CloudAccess:
    return CloudAccess(
        cloud="",
        auth_type="password" if auth else "none",
        auth=auth or {},
        endpoint_override=url,
        region_name="",
        cafile="",
        insecure=False,
        patience=Patience(connect_seconds=1, read_seconds=1, retries=0),
    )


def access(cinder: CloudAccess, directory: Path, project: str = "") -> LinkAccess:
    return LinkAccess(
        host="pond",
        initiator="iqn:us",
        owner=lambda: "me",
        cinder=cinder,
        ceph=OURS,
        bases=directory,
        state=directory,
        reader=lambda: 0,
        image_volume_project=project,
    )


@pytest.fixture
def targets(tmp_path: Path) -> LinkTargets:
    return LinkTargets(access(cloud("http://127.0.0.1:9"), tmp_path))


@pytest.mark.parametrize(
    ("owner", "named", "with_keystone", "is_believed"),
    [
        pytest.param(PROJECT, "", True, True, id="our own"),
        pytest.param("glances", "", True, False, id="another"),
        pytest.param("glances", "glances", True, True, id="the one that is named"),
        pytest.param(PROJECT, "glances", True, False, id="our own, and another is named"),
        pytest.param("", "", False, False, id="nobody says whose"),
        pytest.param("", "glances", True, False, id="Cinder does not say whose"),
    ],
)
def test_what_a_volume_says_of_itself_is_believed_in_glances_project_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: str,
    named: str,
    with_keystone: bool,
    is_believed: bool,
) -> None:
    """Its owner can make it say that it has the image, and that it is read-only."""
    monkeypatch.setenv("NO_PROXY", ADDRESS)
    with serving() as web, saying(ISCSI) as pages:
        pages.project = owner
        auth = {**AUTH, "auth_url": offer_keystone(web)} if with_keystone else None
        targets = LinkTargets(access(cloud(pages.url, auth), tmp_path, named))
        refused = pytest.raises(NotLinkable, match="belongs to project")
        with nullcontext() if is_believed else refused:
            targets.at(LOCATION).look(IMAGE.id)


@pytest.mark.parametrize("location", [f"cinder://{VOLUME}", f"cinder://fast/{VOLUME}"])
def test_a_volume_is_named_with_or_without_its_store(targets: LinkTargets, location: str) -> None:
    assert targets.at(location).location == location  # type: ignore[attr-defined]


def test_only_the_place_that_glance_gives_an_image_is_linked(targets: LinkTargets) -> None:
    """Who may set a location could name the bytes of others."""
    for location in ("rbd://a-b/volumes/volume-of-others/snap", "rbd://a-b/images/mine/other"):
        with pytest.raises(NotLinkable, match="not the one that Glance gives an image"):
            targets.at(location).look(ImageId("mine"))


@pytest.mark.parametrize("format", [ImageFormat.QCOW2, ImageFormat.VMDK, ImageFormat.PLOOP])
@pytest.mark.parametrize("template", [DiskFormat.RAW, DiskFormat.QCOW2])
def test_only_raw_bytes_are_linked(format: ImageFormat, template: DiskFormat) -> None:
    """Before anybody is asked: another format can name files of the host, by what its owner
    writes there once it was inspected."""
    image = replace(IMAGE, format=format)
    nobody: Any = SimpleNamespace(locations=lambda _image: (LINK.location,))
    preview = VolumeLinkingTemplateImagehandler.preview_link(nobody, nobody, image, template)
    assert preview == LinkPreview(not_linked=f"it is {format}, and only raw bytes are linked")


def test_a_link_of_an_earlier_version_that_is_not_raw_is_no_template(tmp_path: Path) -> None:
    pool = MemoryPool("base")
    pool.path = str(tmp_path / "_base")
    store = LocalTemplates(pool)
    for format in (DiskFormat.RAW, DiskFormat.QCOW2):
        template = Template(
            image=IMAGE.id,
            image_digest="",
            pool="base",
            volume=f"a.{format}",
            format=format,
            virtual_size=1,
            size=1,
            prepared=Prepared.LINK,
            digest=None,
            created="2026-05-01T09:12:44+00:00",
            link=LINK,
        )
        store.put(template)
    assert [each.format for each in store.all()] == [DiskFormat.RAW]


@pytest.mark.parametrize(
    ("location", "kind"),
    [
        ("file:///var/lib/glance/images/x", "file"),
        ("cinder://fast/../etc", "cinder"),
        (f"cinder://{VOLUME}/more/of/it", "cinder"),
        ("rbd://image", "rbd"),
        ("rbd://a-b/--config/image/snap", "rbd"),
        ("rbd://a-b/glance%2Fimages/image/snap", "rbd"),
        ("rbd://a-b/images/image%40old/snap", "rbd"),
        ("swift+https://x/y", "swift+https"),
    ],
)
def test_other_places_are_not_linked(targets: LinkTargets, location: str, kind: str) -> None:
    with pytest.raises(NotLinkable, match=f"kind '{kind.replace('+', '.')}'"):
        targets.at(location)


def test_a_volume_in_ceph_is_read_by_the_user_whose_key_libvirt_has() -> None:
    source = connect_link(LINK, RBD, options(OURS)).rbd
    assert source == RbdSource(
        access=CephAccess(
            pool="volumes",
            monitors=(("10.0.0.1", 3300), ("fd00::2", 6789)),
            user="nova",
            secret="s",
        ),
        image=f"volume-{VOLUME}",
    )


def test_without_one_of_our_own_cinders_user_reads_it() -> None:
    source = connect_link(LINK, RBD, options()).rbd
    assert source
    assert (source.access.user, source.access.secret) == ("cinder", "theirs")


def test_a_lun_is_reached_by_qemu_itself() -> None:
    source = connect_link(LINK, ISCSI, options(initiator="iqn:us")).iscsi
    assert source == IscsiSource(
        host="fd00::1",
        port=3260,
        target="iqn.2010-10.org.openstack:volume",
        lun=1,
        initiator="iqn:us",
    )


@pytest.mark.parametrize(
    ("connection", "reason"),
    [
        ({**CHAP, "encrypted": True}, "encrypted"),
        ({**NFS, "format": "qcow2"}, "is a qcow2 file"),
        ({**RBD, "encrypted": True}, "encrypted"),
        ({**RBD, "ports": ["3300"]}, "is not understood"),
        ({**ISCSI, "target_lun": "first"}, "is not understood"),
        ({"driver_volume_type": "iscsi"}, "is not understood"),
        ({"driver_volume_type": "fibre_channel"}, "kind 'fibre_channel'"),
        ({}, "kind None"),
    ],
)
def test_what_nobody_reaches_is_downloaded(connection: dict[str, object], reason: str) -> None:
    with pytest.raises(NotLinkable, match=reason):
        connect_link(LINK, connection, options(OURS))


@pytest.mark.parametrize("connection", [CHAP, NFS])
def test_what_qemu_does_not_reach_by_itself_is_the_hosts_to_connect(
    connection: dict[str, object],
) -> None:
    assert is_for_the_host(connection)
    link = connect_link(LINK, connection, options(OURS))
    assert link.source == FileSource(path=f"/dev/{connection['driver_volume_type']}")


@pytest.mark.parametrize("connection", [RBD, ISCSI, {}])
def test_what_qemu_reaches_the_host_does_not_connect(connection: dict[str, object]) -> None:
    assert not is_for_the_host(connection)


def test_only_what_must_be_seen_of_a_linked_image_is_read() -> None:
    asked: list[tuple[int, int]] = []

    def read(offset: int, length: int) -> bytes:
        asked.append((offset, length))
        return b"\xaa" * length

    size = 1024**4
    finding = Inspection(ImageFormat.RAW, "big").look_at(read, size)
    assert finding.virtual_size == size
    assert sum(length for _, length in asked) <= 128 * 1024


def test_a_place_that_ends_before_the_image_is_refused() -> None:
    with pytest.raises(ImageRefused, match="cut off"):
        Inspection(ImageFormat.ISO, "short").look_at(lambda _offset, _length: b"", 1024**2)


def test_a_part_of_a_longer_file_is_read_as_far_as_it_is_meant(tmp_path) -> None:
    path = tmp_path / "volume"
    path.write_bytes(b"".join(bytes([number]) * 4096 for number in range(64)))
    source = FileSource(path=str(path))
    layer = Layer(source=source, format=DiskFormat.QCOW2, length=200_000 // 512 * 512)
    assert qemu_img.read(layer, 4090, 10, tmp_path / "seen") == bytes([0] * 6 + [1] * 4)
    assert qemu_img.read(layer, 131_072, 3, tmp_path / "seen") == bytes([32] * 3)
    assert len(qemu_img.read(layer, 196_608, 65_536, tmp_path / "seen")) == 199_680 - 196_608
