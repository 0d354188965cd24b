"""A Glance that misbehaves: what it says of its images, and how it gives them."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import FetchFailed, FetchInterrupted, ImageNotFound, ImageRefused
from millpond.images.glance import Glance
from millpond.images.receive import receive
from millpond.model.formats import ImageFormat
from millpond.model.glance import GlanceAccess
from millpond.model.image import Image
from millpond.model.names import ImageId
from millpond.model.transfer import Patience
from tests.support.image_files import MiB, raw_file
from tests.support.loopback import ADDRESS
from tests.support.web import Answer, Web, serving

ID = ImageId("5a3c1f60-0d1e-4c3b-9c77-0f1f4f2a9b11")
FILE = f"/v2/images/{ID}/file"


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("NO_PROXY", ADDRESS)
    with serving() as web:
        link = {"rel": "self", "href": web.url("/v2/")}
        versions = {"versions": [{"id": "v2.9", "status": "CURRENT", "links": [link]}]}
        for path in ("", "/"):
            web.offer(path, json.dumps(versions).encode())
        yield web


@pytest.fixture
def source(web: Web) -> Glance:
    return Glance(
        GlanceAccess(
            cloud="",
            auth_type="none",
            auth={},
            endpoint_override=web.url(""),
            region_name="",
            cafile="",
            insecure=False,
            patience=Patience(connect_seconds=1, read_seconds=1, retries=1),
        )
    )


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    return raw_file(tmp_path).read_bytes()


def offer(web: Web, content: bytes, *answers: Answer, usual: Answer | None = None) -> None:
    # Glance states no version of the bytes, which never change.
    web.offer(FILE, content, *answers, usual=usual or Answer(etag=None))


def describe(web: Web, content: bytes, **said: Any) -> None:
    usual = {
        "id": ID,
        "name": "guest",
        "status": "active",
        "disk_format": "raw",
        "container_format": "bare",
        "size": len(content),
        "virtual_size": len(content),
        "os_hash_algo": "sha512",
        "os_hash_value": hashlib.sha512(content).hexdigest(),
        "checksum": hashlib.md5(content, usedforsecurity=False).hexdigest(),
        "created_at": "2026-11-15T12:00:00Z",
    }
    web.offer(f"/v2/images/{ID}", json.dumps(usual | said).encode())


def received(source: Glance, target: Path) -> Image:
    image = source.describe(ID)
    receive(source.open(image), target, image.format, image.name)
    return image


# How it gives them


def test_what_broke_off_is_gone_on_with(
    web: Web, source: Glance, content: bytes, tmp_path: Path
) -> None:
    describe(web, content)
    offer(web, content, Answer(etag=None, truncate=MiB))
    received(source, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == content
    assert [each.range for each in web.seen if each.path == FILE] == [None, f"bytes={MiB}-"]
    assert web.sent[FILE] == len(content)


@pytest.mark.parametrize("fault", [Answer(status=503), Answer(hang=0)], ids=["503", "silent"])
def test_a_glance_that_recovers_is_asked_again(
    web: Web, source: Glance, content: bytes, tmp_path: Path, fault: Answer
) -> None:
    describe(web, content)
    offer(web, content, fault)
    received(source, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == content


def test_without_ranges_it_is_begun_again(
    web: Web, source: Glance, content: bytes, tmp_path: Path
) -> None:
    describe(web, content)
    plain = Answer(etag=None, ranges=False)
    offer(web, content, Answer(truncate=MiB, content=b"\1" * len(content)), usual=plain)
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
    describe(web, content)
    offer(web, content, usual=usual)
    with pytest.raises(FetchInterrupted, match=f"image {ID} of Glance: {sentence}"):
        received(source, tmp_path / "part")
    assert not (tmp_path / "part").exists()


@pytest.mark.parametrize("algorithm", ["sha512", "sha256", "sha3_256"])
def test_bytes_that_belie_their_digest_are_refused(
    web: Web, source: Glance, content: bytes, tmp_path: Path, algorithm: str
) -> None:
    value = hashlib.new(algorithm, content).hexdigest()
    describe(web, content, os_hash_algo=algorithm, os_hash_value=value)
    offer(web, content)
    assert received(source, tmp_path / "part").digest == value
    offer(web, content[:-1] + b"X")
    with pytest.raises(ImageRefused, match=f"its {algorithm} is not the one that was stated"):
        received(source, tmp_path / "other")
    assert not (tmp_path / "other").exists()


# What it says of them


def test_an_old_image_has_an_old_digest(web: Web, source: Glance, content: bytes) -> None:
    describe(web, content, os_hash_algo=None, os_hash_value=None)
    assert source.describe(ID).digest_algorithm == "md5"


def test_a_raw_image_is_as_large_as_its_file(web: Web, source: Glance, content: bytes) -> None:
    describe(web, content, virtual_size=None)
    assert source.describe(ID).virtual_size == len(content)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"disk_format": "luks"}, "its format is 'luks'"),
        ({"disk_format": None}, "its format is None"),
        ({"container_format": "ova"}, "in a container of the format 'ova'"),
        ({"disk_format": "qcow2", "virtual_size": None}, "does not say how large a disk"),
        ({"os_hash_value": None, "checksum": None}, "states no digest"),
    ],
)
def test_what_cannot_be_trusted_is_refused(
    web: Web, source: Glance, content: bytes, said: dict[str, Any], sentence: str
) -> None:
    describe(web, content, **said)
    with pytest.raises(ImageRefused, match=sentence):
        source.describe(ID)


def test_properties_are_the_disks_alone(web: Web, source: Glance, content: bytes) -> None:
    describe(web, content, hw_disk_bus="scsi", os_hidden=False, stores="a", mine="b")
    image = source.describe(ID)
    assert image.properties == {"hw_disk_bus": "scsi", "mine": "b"}
    assert (image.name, image.format) == ("guest", ImageFormat.RAW)


def test_locations_are_what_glance_shows(web: Web, source: Glance, content: bytes) -> None:
    url = "cinder://volumes/5a3c1f60"
    describe(web, content)
    image = source.describe(ID)
    assert source.locations(image) == ()
    describe(web, content, direct_url=url)
    assert source.locations(image) == (url,)
    describe(web, content, direct_url=url, locations=[{"url": url}, {"url": "rbd://a/b/c/d"}])
    assert source.locations(image) == (url, "rbd://a/b/c/d")


@pytest.mark.parametrize(
    ("status", "kind", "sentence"),
    [
        (404, ImageNotFound, "there is no image"),
        (403, FetchFailed, r"its server answers 403 \(Forbidden\)"),
        (401, FetchFailed, "its server answers 401"),
    ],
)
def test_a_refusal_is_said(
    web: Web, source: Glance, status: int, kind: type[Exception], sentence: str
) -> None:
    web.offer(f"/v2/images/{ID}", b"", usual=Answer(status=status))
    with pytest.raises(kind, match=sentence):
        source.describe(ID)
