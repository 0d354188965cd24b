"""Images from the web: whatever the server does, a whole image arrives or nothing stays."""

import hashlib
import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from millpond.errors import (
    BadOption,
    FetchFailed,
    FetchForbidden,
    FetchInterrupted,
    ImageRefused,
    NotFound,
)
from millpond.images.intake import Intake
from millpond.images.source import Stream
from millpond.model.formats import ImageFormat
from millpond.model.image import Image
from millpond.model.transfer import Digest, Patience
from millpond.system.http import Reading, Resource
from tests.support.image_files import MiB, converted, raw_file
from tests.support.loopback import ADDRESS, free_port
from tests.support.web import Answer, Web, serving

PATIENCE = Patience(connect_seconds=1, read_seconds=1, retries=2)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", ADDRESS)


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as web:
        yield web


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "images"


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    return raw_file(tmp_path).read_bytes()


class Fetcher:
    def __init__(self, directory: Path) -> None:
        self.intake = Intake(directory)
        self._directory = directory
        self.progress = 0
        self.format = ImageFormat.RAW

    def __call__(self, url: str, digest: Digest | None = None, retries: int = 2) -> Image:
        resource = Resource(url, PATIENCE)
        stream = Stream(
            chunks=resource.chunks,
            retries=retries,
            digest=digest,
            length=lambda: resource.size,
            has_end=lambda: resource.has_end,
        )
        return self.intake.fetch(stream, name="guest", format=self.format, progress=self._advance)

    def _advance(self, count: int) -> None:
        self.progress += count

    def content(self, image: Image) -> bytes:
        return self.intake.local_file(image).read_bytes()

    @property
    def left(self) -> list[Path]:
        return [
            path
            for path in self._directory.rglob("*")
            if path.is_file() and path.parent.name != "locks"
        ]


@pytest.fixture
def fetch(directory: Path) -> Fetcher:
    return Fetcher(directory)


def ranges(web: Web) -> list[str | None]:
    return [each.range for each in web.seen]


# What arrives


@pytest.mark.parametrize("usual", [Answer(), Answer(chunked=True)], ids=["length", "chunked"])
def test_an_image_is_fetched_once_and_whole(
    web: Web, fetch: Fetcher, content: bytes, usual: Answer
) -> None:
    image = fetch(web.offer("/disk.raw", content, usual=usual))

    assert fetch.content(image) == content
    assert image.digest == hashlib.sha512(content).hexdigest()
    assert fetch.progress == len(content)
    assert web.sent["/disk.raw"] == len(content)
    assert fetch.intake.local_file(image).stat().st_blocks * 512 < len(content)


@pytest.mark.parametrize("algorithm", ["sha256", "sha384", "sha512"])
def test_a_stated_digest_is_compared(
    web: Web, fetch: Fetcher, content: bytes, algorithm: str
) -> None:
    value = hashlib.new(algorithm, content).hexdigest()
    url = web.offer("/disk.raw", content)

    assert fetch(url, Digest.parse(f"{algorithm}:{value.upper()}"))


def test_bytes_that_belie_their_digest_are_refused(
    web: Web, fetch: Fetcher, content: bytes
) -> None:
    value = hashlib.sha256(content).hexdigest()
    changed = content[:-1] + bytes([content[-1] ^ 1])
    url = web.offer("/disk.raw", content, usual=Answer(content=changed))

    with pytest.raises(ImageRefused, match="its sha256 is not the one that was stated"):
        fetch(url, Digest(algorithm="sha256", value=value))
    assert fetch.left == []
    web.offer("/disk.raw", content)
    assert fetch(url, Digest(algorithm="sha256", value=value))


@pytest.mark.parametrize("text", ["", "sha256:", "sha256:12", "md5:" + "0" * 32, "0" * 64])
def test_what_is_no_digest_is_bad_input(text: str) -> None:
    with pytest.raises(BadOption, match="not an algorithm and its hexadecimal digest"):
        Digest.parse(text)


# What breaks off


@pytest.mark.parametrize(
    "version",
    [{"etag": '"one"'}, {"etag": None, "modified": "Sun, 15 Nov 2026 12:00:00 GMT"}],
    ids=["ETag", "Last-Modified"],
)
def test_a_download_that_broke_off_is_gone_on_with(
    web: Web, fetch: Fetcher, content: bytes, version: dict[str, str | None]
) -> None:
    usual = Answer(**version)  # type: ignore[arg-type]
    broken = Answer(truncate=MiB, **version)  # type: ignore[arg-type]
    image = fetch(web.offer("/disk.raw", content, broken, broken, usual=usual))

    assert fetch.content(image) == content
    assert ranges(web) == [None, f"bytes={MiB}-", f"bytes={2 * MiB}-"]
    assert {each.if_range for each in web.seen[1:]} == {version["etag"] or version["modified"]}
    assert web.sent["/disk.raw"] == len(content)
    assert fetch.progress == len(content)


@pytest.mark.parametrize(
    "usual",
    [
        Answer(ranges=False),
        Answer(etag='"two"'),
        Answer(etag='"one"', range_lie=True),
    ],
    ids=["no ranges", "another version", "another range than asked for"],
)
def test_what_cannot_be_gone_on_with_is_begun_again(
    web: Web, fetch: Fetcher, content: bytes, usual: Answer
) -> None:
    """No byte of the first answer stays: there it was another version's."""
    old = Answer(content=b"\1" * len(content), truncate=MiB)
    image = fetch(web.offer("/disk.raw", content, old, usual=usual))

    assert fetch.content(image) == content
    assert ranges(web) == [None, f"bytes={MiB}-", None]
    assert fetch.progress == len(content)


@pytest.mark.parametrize("etag", [None, 'W/"one"'], ids=["no version", "a weak one"])
def test_without_a_version_nothing_is_gone_on_with(
    web: Web, fetch: Fetcher, content: bytes, etag: str | None
) -> None:
    old = Answer(etag=etag, content=b"\1" * len(content), truncate=MiB)
    image = fetch(web.offer("/disk.raw", content, old, usual=Answer(etag=etag)))

    assert fetch.content(image) == content
    assert ranges(web) == [None, None]


@pytest.mark.parametrize("fault", [Answer(status=503), Answer(status=429), Answer(hang=0)])
def test_a_server_that_recovers_is_asked_again(
    web: Web, fetch: Fetcher, content: bytes, fault: Answer
) -> None:
    assert fetch.content(fetch(web.offer("/disk.raw", content, fault))) == content


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (Answer(truncate=MiB, ranges=False), "it broke off after 1 MiB of 4 MiB"),
        (Answer(truncate=MiB, chunked=True, ranges=False), "it broke off after 1 MiB"),
        (Answer(status=503), r"its server answers 503 \(Service Unavailable\)"),
        (Answer(hang=0), "its server sent nothing for 1 s"),
        (Answer(hang=MiB), "its server sent nothing for 1 s"),
        (Answer(trickle=True), "its server sent less than 256 KiB in 1 s"),
    ],
    ids=["truncated", "truncated without a length", "503", "silent", "hangs", "trickles"],
)
def test_what_never_gets_better_is_an_error_in_the_end(
    web: Web, fetch: Fetcher, content: bytes, fault: Answer, sentence: str
) -> None:
    url = web.offer("/disk.raw", content, usual=fault)

    with pytest.raises(FetchInterrupted, match=sentence):
        fetch(url, retries=1)
    assert fetch.left == []
    web.offer("/disk.raw", content)
    assert fetch.content(fetch(url)) == content


def test_tries_are_bounded(web: Web, fetch: Fetcher, content: bytes) -> None:
    url = web.offer("/disk.raw", content, usual=Answer(status=503))
    with pytest.raises(FetchInterrupted):
        fetch(url, retries=2)
    assert len(web.seen) == 3


def test_a_server_that_is_not_there_is_an_error(fetch: Fetcher) -> None:
    with pytest.raises(FetchInterrupted, match="Connection refused"):
        fetch(f"http://{ADDRESS}:{free_port()}/disk.raw", retries=0)


@pytest.mark.parametrize(
    ("status", "kind", "sentence"),
    [
        (404, NotFound, "there is nothing at http://"),
        (410, NotFound, "there is nothing at http://"),
        (403, FetchForbidden, r"its server answers 403 \(Forbidden\)"),
        (204, FetchFailed, "its server answers 204"),
    ],
)
def test_a_refusal_is_not_asked_again(
    web: Web, fetch: Fetcher, status: int, kind: type[Exception], sentence: str
) -> None:
    url = web.offer("/disk.raw", b"", usual=Answer(status=status))
    with pytest.raises(kind, match=sentence):
        fetch(url)
    assert len(web.seen) == 1
    assert fetch.left == []


def test_what_is_refused_is_fetched_no_further(web: Web, fetch: Fetcher) -> None:
    content = b"QFI\xfb" + bytes(64 * MiB)
    with pytest.raises(ImageRefused):
        fetch(web.offer("/disk.raw", content))
    assert web.sent["/disk.raw"] < 16 * MiB
    assert fetch.left == []


# Where it leads, and who is told


def test_a_raw_image_of_no_stated_end_needs_a_digest(
    web: Web, fetch: Fetcher, content: bytes
) -> None:
    """Whoever cuts the connection off at a whole sector would decide where the disk ends."""
    url = web.offer("/guest.raw", content, usual=Answer(endless=True, truncate=2 * MiB))
    with pytest.raises(ImageRefused, match="does not say where it ends") as raised:
        fetch(url)
    assert raised.value.advice == "state its digest: --digest sha256:HEX"
    assert fetch.left == []
    digest = Digest(algorithm="sha256", value=hashlib.sha256(content).hexdigest())
    with pytest.raises(ImageRefused, match="its sha256 is not the one that was stated"):
        fetch(url, digest)
    web.offer("/guest.raw", content, usual=Answer(endless=True))
    assert fetch.content(fetch(url, digest)) == content


def test_a_qcow2_of_no_stated_end_shows_that_it_is_cut_off(
    web: Web, fetch: Fetcher, tmp_path: Path
) -> None:
    content = converted(raw_file(tmp_path), "qcow2").read_bytes()
    fetch.format = ImageFormat.QCOW2
    cut = Answer(endless=True, truncate=len(content) // 2)
    url = web.offer("/guest.qcow2", content, cut, usual=Answer(endless=True))
    with pytest.raises(ImageRefused, match="it is cut off"):
        fetch(url)
    assert fetch.content(fetch(url)) == content


def test_more_than_was_stated_is_an_error(web: Web, content: bytes) -> None:
    url = web.offer("/guest.raw", content)
    reading = Reading(shown=url, patience=PATIENCE)
    with requests.get(url, stream=True) as response, pytest.raises(FetchFailed, match="more than"):
        list(reading.body(response, 0, MiB))


def test_redirects_are_followed_a_few_times(web: Web, fetch: Fetcher, content: bytes) -> None:
    web.offer("/disk.raw", content)
    web.offer("/latest", b"", usual=Answer(redirect="disk.raw"))
    web.offer("/round", b"", usual=Answer(redirect="/round"))

    with pytest.raises(FetchFailed, match="it leads on more than 5 times"):
        fetch(web.url("/round"))
    assert fetch.content(fetch(web.url("/latest"))) == content


def test_credentials_reach_their_server_alone(
    web: Web,
    fetch: Fetcher,
    content: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "millpond")
    with serving() as other:
        other.offer("/disk.raw", content, Answer(status=503))
        web.offer("/latest", b"", usual=Answer(redirect=other.url("/disk.raw")))
        address = web.url("/latest?key=hidden").replace("http://", "http://me:s%40cret@")
        assert fetch(address)
        assert {each.authorization for each in web.seen} == {"Basic bWU6c0BjcmV0"}
        assert {each.authorization for each in other.seen} == {None}
    web.offer("/latest", b"", usual=Answer(status=403))
    with pytest.raises(FetchFailed) as raised:
        list(Resource(address, PATIENCE).chunks(0))
    told = f"{raised.value} {caplog.text}"
    assert "/latest?…" in told
    assert not any(secret in told for secret in ("cret", "me:", "hidden"))


@pytest.mark.parametrize("url", ["ftp://host/a", "https://", "http://host:x/a", "https://[/a"])
def test_what_is_no_web_address_is_bad_input(url: str) -> None:
    with pytest.raises(BadOption, match="no web address"):
        Resource(url, PATIENCE)


@pytest.fixture
def secure_web(tmp_path: Path) -> Iterator[tuple[Web, Path]]:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=loopback", "-addext", f"subjectAltName=IP:{ADDRESS}"),
            *("-out", certificate, "-keyout", key),
        ],
        check=True,
        capture_output=True,
    )
    with serving((certificate, key)) as web:
        yield web, certificate


def test_certificates_are_verified(
    secure_web: tuple[Web, Path], fetch: Fetcher, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    web, certificate = secure_web
    url = web.offer("/disk.raw", content)
    with pytest.raises(FetchFailed, match="its certificate is not trusted: self-signed"):
        fetch(url)
    assert web.seen == []
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    assert fetch.content(fetch(url)) == content


def test_an_encrypted_way_stays_so(
    secure_web: tuple[Web, Path], web: Web, fetch: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    secure, certificate = secure_web
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    url = secure.offer("/latest", b"", usual=Answer(redirect=web.url("/disk.raw?key=hidden")))
    with pytest.raises(FetchFailed, match="which is not encrypted") as raised:
        fetch(url)
    assert web.seen == []
    assert "hidden" not in str(raised.value)
