"""A Glance that misbehaves: what it says of its images, and how it gives them."""

import hashlib
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millpond.disks.disks import root_size
from millpond.errors import (
    FetchFailed,
    FetchForbidden,
    FetchInterrupted,
    ImageNotFound,
    ImageRefused,
    UploadFailed,
)
from millpond.images.glance import Glance
from millpond.images.receive import receive
from millpond.images.source import Upload
from millpond.model.callbacks import noop
from millpond.model.cloud import CloudAccess
from millpond.model.formats import ImageFormat
from millpond.model.image import Image
from millpond.model.names import ImageId
from millpond.model.transfer import Patience
from millpond.templates.downloading import refuse_larger_disk
from tests.support.glance_pages import (
    FILE,
    ID,
    offer_content,
    offer_description,
    offer_versions,
)
from tests.support.image_files import (
    MiB,
    converted,
    iso_file,
    qemu_img,
    raw_file,
    virtual_size,
)
from tests.support.keystone_pages import AUTH, TOKENS, offer_keystone
from tests.support.loopback import ADDRESS
from tests.support.web import Answer, Web, serving

ACCESS = CloudAccess(
    cloud="",
    auth_type="",
    auth={},
    endpoint_override="",
    region_name="",
    cafile="",
    insecure=False,
    patience=Patience(connect_seconds=1, read_seconds=1, retries=1),
)


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("NO_PROXY", ADDRESS)
    with serving() as web:
        offer_versions(web)
        yield web


@pytest.fixture
def source(web: Web) -> Glance:
    return Glance(replace(ACCESS, auth_type="none", endpoint_override=web.url("")))


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    return raw_file(tmp_path).read_bytes()


def received(source: Glance, target: Path) -> Image:
    image = source.describe(ImageId(ID))
    receive(source.open(image), target, image.format, image.name)
    return image


def test_clouds_yaml_leads_there(
    web: Web, source: Glance, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clouds.yaml").write_text(
        f"clouds: {{mine: {{auth_type: none, image_endpoint_override: '{web.url('')}'}}}}"
    )
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    offer_description(web, content)
    elsewhere = replace(ACCESS, cloud="mine")
    assert Glance(elsewhere).describe(ImageId(ID)) == source.describe(ImageId(ID))
    with pytest.raises(FetchFailed, match="do not lead there"):
        Glance(replace(ACCESS, cloud="another")).describe(ImageId(ID))


def test_keystone_leads_there(web: Web, source: Glance, content: bytes) -> None:
    """What [glance] says of a user reaches Keystone; its catalogue says where Glance is."""
    auth = AUTH | {"auth_url": offer_keystone(web, image=web.url(""))}
    offer_description(web, content)
    access = replace(ACCESS, auth_type="password", auth=auth, region_name="north")

    assert Glance(access).describe(ImageId(ID)) == source.describe(ImageId(ID))

    said = json.loads(web.posted[0])["auth"]
    assert said["identity"]["password"]["user"]["name"] == "millpond"
    assert said["scope"]["project"] == {"name": "service", "domain": {"name": "Default"}}
    web.offer(TOKENS, b"", usual=Answer(status=401))
    with pytest.raises(FetchFailed, match="its server answers 401") as raised:
        Glance(access).describe(ImageId(ID))
    assert "secret" not in str(raised.value)


# How it gives them


def test_what_broke_off_is_gone_on_with(
    web: Web, source: Glance, content: bytes, tmp_path: Path
) -> None:
    offer_description(web, content)
    offer_content(web, content, Answer(etag=None, truncate=MiB))
    received(source, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == content
    assert [each.range for each in web.seen if each.path == FILE] == [None, f"bytes={MiB}-"]
    assert web.sent[FILE] == len(content)


@pytest.mark.parametrize("fault", [Answer(status=503), Answer(hang=0)], ids=["503", "silent"])
def test_a_glance_that_recovers_is_asked_again(
    web: Web, source: Glance, content: bytes, tmp_path: Path, fault: Answer
) -> None:
    offer_description(web, content)
    offer_content(web, content, fault)
    received(source, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == content


def test_without_ranges_it_is_begun_again(
    web: Web, source: Glance, content: bytes, tmp_path: Path
) -> None:
    offer_description(web, content)
    plain = Answer(etag=None, ranges=False)
    offer_content(web, content, Answer(truncate=MiB, content=b"\1" * len(content)), usual=plain)
    received(source, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == content


@pytest.mark.parametrize(
    ("usual", "sentence"),
    [
        (Answer(status=503), "its server answers 503"),
        (Answer(hang=MiB), "its server sent nothing for 1 s"),
        (Answer(truncate=MiB, ranges=False), "it broke off after 1 MiB of 4 MiB"),
        (Answer(trickle=True), "its server sent less than 256 KiB in 1 s"),
    ],
    ids=["503", "hangs", "truncated", "trickles"],
)
def test_what_never_gets_better_is_an_error_in_the_end(
    web: Web, source: Glance, content: bytes, tmp_path: Path, usual: Answer, sentence: str
) -> None:
    offer_description(web, content)
    offer_content(web, content, usual=usual)
    with pytest.raises(FetchInterrupted, match=f"image {ID} of Glance: {sentence}"):
        received(source, tmp_path / "part")
    assert not (tmp_path / "part").exists()


@pytest.mark.parametrize(
    ("described", "kind"), [(True, FetchFailed), (False, ImageNotFound)], ids=["bytes", "image"]
)
def test_what_is_gone_when_it_is_fetched_is_said(
    web: Web, source: Glance, content: bytes, described: bool, kind: type[Exception]
) -> None:
    offer_description(web, content)
    image = source.describe(ImageId(ID))
    if not described:
        del web.pages[f"/v2/images/{ID}"]
    with pytest.raises(kind):
        list(source.open(image).chunks(0))


@pytest.mark.parametrize("algorithm", ["sha512", "sha256", "sha3_256"])
def test_bytes_that_belie_their_digest_are_refused(
    web: Web, source: Glance, content: bytes, tmp_path: Path, algorithm: str
) -> None:
    value = hashlib.new(algorithm, content).hexdigest()
    offer_description(web, content, os_hash_algo=algorithm, os_hash_value=value)
    offer_content(web, content)
    assert received(source, tmp_path / "part").digest == value
    offer_content(web, content[:-1] + b"X")
    with pytest.raises(ImageRefused, match=f"its {algorithm} is not the one that was stated"):
        received(source, tmp_path / "other")
    assert not (tmp_path / "other").exists()


# What goes there


@pytest.fixture
def upload(web: Web, content: bytes, tmp_path: Path) -> Upload:
    path = tmp_path / ID
    path.write_bytes(content)
    offer_description(web, content)
    web.offer("/v2/images", b"{}", usual=Answer(status=201))
    web.offer(FILE, b"", usual=Answer(status=204))
    return Upload(
        id=ImageId(ID),
        path=path,
        name="guest",
        format=ImageFormat.RAW,
        size=len(content),
        virtual_size=len(content),
        digest=hashlib.sha512(content).hexdigest(),
        properties={"hw_disk_bus": "scsi", "img_signature": "of other bytes"},
    )


def requests_of(web: Web) -> list[tuple[str, str]]:
    return [(each.method, each.path) for each in web.seen if each.method != "GET"]


def test_an_upload_is_created_filled_and_compared(
    web: Web, source: Glance, upload: Upload, content: bytes
) -> None:
    told: list[int] = []
    image = source.upload(upload, told.append)
    assert (image.id, image.digest, image.virtual_size) == (ID, upload.digest, len(content))
    described, sent = web.posted
    assert sent == content
    assert sum(told) == len(content)
    assert json.loads(described) == {
        "id": ID,
        "name": "guest",
        "disk_format": "raw",
        "container_format": "bare",
        "hw_disk_bus": "scsi",
    }
    assert requests_of(web) == [("POST", "/v2/images"), ("PUT", FILE)]


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/v2/images", 403, r"its server answers 403 \(Forbidden\)"),
        (FILE, 413, "its server answers 413"),
        (FILE, 503, "its server answers 503"),
    ],
)
def test_an_upload_that_fails_is_deleted(
    web: Web, source: Glance, upload: Upload, path: str, status: int, sentence: str
) -> None:
    web.offer(path, b"", usual=Answer(status=status))
    with pytest.raises(UploadFailed, match=f"image guest cannot be uploaded: {sentence}"):
        source.upload(upload, noop)
    assert requests_of(web)[-1] == ("DELETE", f"/v2/images/{ID}")


def test_an_upload_that_arrived_as_other_bytes_is_deleted(
    web: Web, source: Glance, upload: Upload
) -> None:
    offer_description(web, b"other")
    with pytest.raises(UploadFailed, match="Glance has other bytes than were sent"):
        source.upload(upload, noop)
    assert requests_of(web)[-1] == ("DELETE", f"/v2/images/{ID}")


@pytest.mark.parametrize(("status", "name"), [("queued", "guest"), ("active", None)])
def test_only_an_unfinished_upload_is_abandoned(
    web: Web, source: Glance, content: bytes, status: str, name: str | None
) -> None:
    offer_description(web, content, status=status)
    assert source.unfinished(ImageId(ID)) == name
    source.abandon(ImageId(ID))
    assert len(requests_of(web)) == (name is not None)


# What it says of them


def test_an_old_image_has_an_old_digest(web: Web, source: Glance, content: bytes) -> None:
    offer_description(web, content, os_hash_algo=None, os_hash_value=None)
    assert source.describe(ImageId(ID)).digest_algorithm == "md5"


def test_a_raw_image_is_as_large_as_its_file(web: Web, source: Glance, content: bytes) -> None:
    offer_description(web, content, virtual_size=None)
    assert source.describe(ImageId(ID)).virtual_size == len(content)


# How large a disk an image holds that Glance has not looked into

WAYS = {
    "ranges": Answer(etag=None),
    "no-ranges": Answer(etag=None, ranges=False),
    "ranges-are-bad": Answer(etag=None, range_status=400),
}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More than what lies between a server that sends and a client that had enough."""
    path = tmp_path_factory.mktemp("large") / "disk.raw"
    path.write_bytes(random.Random(1).randbytes(32 * MiB))
    return path


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(
    ("declared", "qemu_format"),
    [
        ("qcow2", "qcow2"),
        ("vmdk", "vmdk"),
        ("vdi", "vdi"),
        ("vhd", "vpc"),
        ("vhdx", "vhdx"),
        ("ploop", "parallels"),
    ],
)
def test_the_header_tells_what_glance_does_not(
    web: Web,
    source: Glance,
    large: Path,
    way: Answer,
    declared: str,
    qemu_format: str,
) -> None:
    path = converted(large, qemu_format)
    content = path.read_bytes()
    said = {"disk_format": declared, "container_format": "ami", "virtual_size": None}
    offer_description(web, content, **said)
    offer_content(web, content, usual=way)
    image = source.describe(ImageId(ID))
    assert image.virtual_size == virtual_size(path, qemu_format)
    assert web.sent[FILE] < len(content) * 3 // 4
    if way.range_status:
        assert web.seen[-1].range is None


def test_the_footer_tells_the_size_of_a_fixed_vhd(
    web: Web, source: Glance, large: Path, tmp_path: Path
) -> None:
    path = converted(large, "vpc", "subformat=fixed")
    content = path.read_bytes()
    offer_description(web, content, disk_format="vhd", virtual_size=None)
    offer_content(web, content)
    size = virtual_size(path, "vpc")
    assert source.describe(ImageId(ID)).virtual_size == size
    assert web.sent[FILE] < MiB
    offer_content(web, content, usual=WAYS["no-ranges"])
    image = source.describe(ImageId(ID))
    assert image.virtual_size == 0
    assert web.sent[FILE] < len(content) // 2
    found = receive(source.open(image), tmp_path / "part", image.format, image.name)
    assert found.virtual_size == size
    with pytest.raises(ImageRefused, match="known only when all of it has been read") as raised:
        root_size(image, 0)
    assert raised.value.advice == "state the size of the server's disk"
    assert root_size(image, 64 * MiB) == 64 * MiB


def test_what_the_header_names_is_refused_before_it_is_fetched(
    web: Web, source: Glance, tmp_path: Path
) -> None:
    qemu_img("create", "-q", "-f", "raw", tmp_path / "base", "1M")
    overlay = tmp_path / "overlay"
    qemu_img("create", "-q", "-f", "qcow2", "-b", tmp_path / "base", "-F", "raw", overlay)
    offer_description(web, overlay.read_bytes(), disk_format="qcow2", virtual_size=None)
    offer_content(web, overlay.read_bytes())
    with pytest.raises(ImageRefused, match="it has a backing file"):
        source.describe(ImageId(ID))


def test_a_list_reads_no_headers(web: Web, source: Glance, content: bytes) -> None:
    offer_description(web, content, disk_format="qcow2", virtual_size=None)
    answer = json.loads(web.pages[f"/v2/images/{ID}"].content)
    web.offer("/v2/images", json.dumps({"images": [answer]}).encode())
    assert [image.virtual_size for image in source.all()] == [0]


def test_a_hybrid_iso_is_as_large_as_its_file(web: Web, source: Glance, tmp_path: Path) -> None:
    disc = iso_file(tmp_path).read_bytes() + bytes(MiB)
    stated = len(disc) - MiB
    offer_description(web, disc, disk_format="iso", virtual_size=stated)
    offer_content(web, disc)
    image = source.describe(ImageId(ID))
    assert image.virtual_size == len(disc)
    found = receive(source.open(image), tmp_path / "part", image.format, image.name)
    refuse_larger_disk(image, found.virtual_size)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"disk_format": "luks"}, "its format is 'luks'"),
        ({"disk_format": None}, "its format is None"),
        ({"container_format": "ova"}, "in a container of the format 'ova'"),
        ({"os_hash_value": None, "checksum": None}, "states no digest"),
    ],
)
def test_what_cannot_be_trusted_is_refused(
    web: Web, source: Glance, content: bytes, said: dict[str, Any], sentence: str
) -> None:
    offer_description(web, content, **said)
    with pytest.raises(ImageRefused, match=sentence):
        source.describe(ImageId(ID))


def test_properties_are_the_disks_alone(web: Web, source: Glance, content: bytes) -> None:
    offer_description(web, content, hw_disk_bus="scsi", os_hidden=False, stores="a", mine="b")
    image = source.describe(ImageId(ID))
    assert image.properties == {"hw_disk_bus": "scsi", "mine": "b"}
    assert (image.name, image.format) == ("guest", ImageFormat.RAW)


def test_locations_are_what_glance_shows(web: Web, source: Glance, content: bytes) -> None:
    url = "cinder://volumes/5a3c1f60"
    offer_description(web, content)
    image = source.describe(ImageId(ID))
    assert source.locations(image) == ()
    offer_description(web, content, direct_url=url)
    assert source.locations(image) == (url,)
    offer_description(
        web, content, direct_url=url, locations=[{"url": url}, {"url": "rbd://a/b/c/d"}]
    )
    assert source.locations(image) == (url, "rbd://a/b/c/d")


@pytest.mark.parametrize(
    ("status", "kind", "sentence"),
    [
        (404, ImageNotFound, "there is no image"),
        (403, FetchForbidden, r"its server answers 403 \(Forbidden\)"),
        (401, FetchForbidden, "its server answers 401"),
    ],
)
def test_a_refusal_is_said(
    web: Web, source: Glance, status: int, kind: type[Exception], sentence: str
) -> None:
    web.offer(f"/v2/images/{ID}", b"", usual=Answer(status=status))
    with pytest.raises(kind, match=sentence):
        source.describe(ImageId(ID))
