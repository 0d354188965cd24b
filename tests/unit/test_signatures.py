"""Signatures of images, verified in the pass that writes them."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import ImageRefused
from millpond.images.glance import Glance
from millpond.images.receive import receive
from millpond.images.signatures import Signatures
from millpond.images.verify import find_fault
from millpond.legacy.bases import NovaBases
from millpond.model.cloud import CloudAccess, SignaturePolicy
from millpond.model.formats import DiskFormat
from millpond.model.names import ImageId, template_name
from millpond.model.template import Prepared
from millpond.model.transfer import Patience
from millpond.templates.downloading import DownloadingTemplateImagehandler
from millpond.templates.handler import HandlerContext
from millpond.templates.store import LocalTemplates
from tests.support import certificate_store
from tests.support.glance_pages import (
    FILE,
    ID,
    offer_content,
    offer_description,
    offer_versions,
)
from tests.support.image_files import MiB, raw_file
from tests.support.loopback import ADDRESS
from tests.support.preparing import DirectoryPool, unused
from tests.support.signing import Signer, signer
from tests.support.web import Answer, Web, serving

CERTIFICATE = "publisher"


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("NO_PROXY", ADDRESS)
    with serving() as web:
        offer_versions(web)
        yield web


@pytest.fixture(scope="module")
def publisher() -> Signer:
    return signer("publisher")


@pytest.fixture
def access(web: Web) -> CloudAccess:
    return CloudAccess(
        cloud="",
        auth_type="none",
        auth={},
        endpoint_override=web.url(""),
        region_name="",
        cafile="",
        insecure=False,
        patience=Patience(connect_seconds=1, read_seconds=1, retries=1),
    )


@pytest.fixture
def source(access: CloudAccess, publisher: Signer, tmp_path: Path) -> Glance:
    options = certificate_store.put(tmp_path, CERTIFICATE, publisher.certificate)
    policy = SignaturePolicy(
        trusted=(CERTIFICATE,), key_manager=options, of_every_image=True, seconds=5
    )
    return Glance(access, Signatures(policy))


@pytest.fixture
def trusting(access: CloudAccess, publisher: Signer, tmp_path: Path) -> Glance:
    """Signatures count only of images that are wanted for a server which names certificates."""
    options = certificate_store.put(tmp_path, CERTIFICATE, publisher.certificate)
    policy = SignaturePolicy(trusted=(), key_manager=options, of_every_image=False, seconds=5)
    return Glance(access, Signatures(policy))


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    return raw_file(tmp_path).read_bytes()


def fetch(source: Glance, target: Path) -> bytes:
    image = source.describe(ImageId(ID))
    receive(source.open(image), target, image.format, image.name)
    return target.read_bytes()


@pytest.mark.parametrize(
    ("first", "usual", "asked"),
    [
        pytest.param(Answer(etag=None), Answer(etag=None), [None], id="comes at once"),
        pytest.param(
            Answer(etag=None, truncate=MiB),
            Answer(etag=None),
            [None, f"bytes={MiB}-"],
            id="is gone on with",
        ),
        pytest.param(
            Answer(truncate=MiB, content=b"\1" * 4 * MiB),
            Answer(etag=None, ranges=False),
            [None, f"bytes={MiB}-", None],
            id="is begun again",
        ),
    ],
)
def test_a_signed_image_is_read_once_however_it(
    web: Web,
    source: Glance,
    publisher: Signer,
    content: bytes,
    tmp_path: Path,
    first: Answer,
    usual: Answer,
    asked: list[str | None],
) -> None:
    offer_description(web, content, **publisher.properties(content, CERTIFICATE))
    offer_content(web, content, first, usual=usual)
    assert fetch(source, tmp_path / "part") == content
    assert [each.range for each in web.seen if each.path == FILE] == asked


def test_what_was_not_signed_leaves_no_file(
    web: Web, source: Glance, publisher: Signer, content: bytes, tmp_path: Path
) -> None:
    """Its digest is right: whoever may change an image in Glance states that as well."""
    offer_description(web, content, **publisher.properties(content + b"X", CERTIFICATE))
    offer_content(web, content)
    with pytest.raises(ImageRefused, match="it is not what was signed with certificate publisher"):
        fetch(source, tmp_path / "part")
    assert not (tmp_path / "part").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"img_signature": "?"}, "its img_signature is not written in base64"),
        ({"img_signature": None}, "it has no img_signature"),
        ({"img_signature_key_type": None}, "it has no img_signature_key_type"),
        ({"img_signature_key_type": "DSA"}, "certificate publisher, .*, has no key for DSA"),
        ({"img_signature_key_type": "RSA"}, "its img_signature_key_type is 'RSA', which nothing"),
        ({"img_signature_hash_method": "MD5"}, "its img_signature_hash_method is 'MD5', which"),
        ({"img_signature_certificate_uuid": "other"}, "has no certificate other, with which"),
        (
            {"img_signature_certificate_uuid": "../other"},
            "has no certificate ../other, with which",
        ),
    ],
)
def test_a_wrong_property_is_refused(
    web: Web,
    source: Glance,
    publisher: Signer,
    content: bytes,
    tmp_path: Path,
    change: dict[str, str | None],
    said: str,
) -> None:
    offer_description(web, content, **publisher.properties(content, CERTIFICATE) | change)
    with pytest.raises(ImageRefused, match=said) as refusal:
        fetch(source, tmp_path / "part")
    assert refusal.value.advice
    assert not (tmp_path / "part").exists()


def test_an_unsigned_image_is_refused_before_a_byte_is_asked_for(
    web: Web, source: Glance, content: bytes, tmp_path: Path
) -> None:
    offer_description(web, content)
    with pytest.raises(ImageRefused, match="it is not signed"):
        fetch(source, tmp_path / "part")
    assert FILE not in {each.path for each in web.seen}


def test_an_image_to_be_verified_is_linked_from_nowhere(
    web: Web, source: Glance, access: CloudAccess, content: bytes
) -> None:
    """Its bytes would be used without having been read."""
    offer_description(web, content, direct_url="rbd://cluster/images/one/snap")
    image = source.describe(ImageId(ID))
    assert source.locations(image) == ()
    assert Glance(access).locations(image) == ("rbd://cluster/images/one/snap",)


def test_without_what_verifies_the_configuration_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "millpond.conf"
    config.write_text(
        "[DEFAULT]\nimage_source = glance\n[glance]\nverify_glance_signatures = true\n"
    )
    absent = "import sys; sys.modules['cursive'] = None; "
    command = "from millpond.cli.main import main; main()"
    words = ["--config-file", str(config), "config", "check"]

    def run(program: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program, *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert run(command).returncode == 0
    refused = run(absent + command)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "what verifies signatures is not installed" in refused.stderr
    assert "pip install 'millpond[signatures]'" in refused.stderr


@pytest.mark.parametrize("verified", [True, False], ids=["verified", "not verified"])
@pytest.mark.parametrize(
    ("signed", "adopted"), [("the base", True), ("other bytes", False), ("a qcow2 file", False)]
)
def test_a_base_of_novas_is_taken_over_if_its_bytes_are_what_was_signed(
    web: Web,
    source: Glance,
    access: CloudAccess,
    publisher: Signer,
    content: bytes,
    tmp_path: Path,
    signed: str,
    adopted: bool,
    verified: bool,
) -> None:
    """Nova's own driver may have made it before anybody asked for signatures. Of one that it has
    converted nothing was signed."""
    stated = {"disk_format": "qcow2"} if signed == "a qcow2 file" else {}
    known = content if signed == "the base" else b"other bytes"
    offer_description(web, content, **publisher.properties(known, CERTIFICATE), **stated)
    store = LocalTemplates(DirectoryPool(tmp_path / "_base"))
    base = store.cache / template_name(ImageId(ID), DiskFormat.RAW)
    base.write_bytes(content)
    images = source if verified else Glance(access)
    image = replace(images.describe(ImageId(ID)), virtual_size=len(content))
    template = NovaBases(store).adopt_image(
        image, DiskFormat.RAW, lambda path, image: find_fault(path, image, images.open(image))
    )
    assert (template is not None) == (adopted or not verified)
    assert base.read_bytes() == content
    assert store.find(base.name) == template


@pytest.fixture
def store(tmp_path: Path) -> LocalTemplates:
    return LocalTemplates(DirectoryPool(tmp_path / "_base"))


def downloading(images: Glance, store: LocalTemplates) -> DownloadingTemplateImagehandler:
    return DownloadingTemplateImagehandler(
        HandlerContext(store=store, images=images, users=unused)
    )


def test_a_template_is_verified_once_somebody_trusts_certificates(
    web: Web, trusting: Glance, publisher: Signer, content: bytes, store: LocalTemplates
) -> None:
    """One that was made before is prepared again, and then it is known what it is."""
    offer_description(web, content, **publisher.properties(content, CERTIFICATE))
    offer_content(web, content)
    handler = downloading(trusting, store)
    image = trusting.describe(ImageId(ID))
    trusted = replace(image, trusted=(CERTIFICATE,))
    made = []
    for asked in (image, trusted, trusted, image):
        template = handler.fetch_image(asked, DiskFormat.RAW)
        downloads = [each for each in web.seen if each.path == FILE]
        made.append((template.signature == image.signature, len(downloads)))
    assert made == [(False, 1), (True, 2), (True, 2), (True, 2)]
    with pytest.raises(ImageRefused, match="leads to no trusted one") as refused:
        handler.fetch_image(replace(image, trusted=("another",)), DiskFormat.RAW)
    assert "the server's list of trusted image certificates" in refused.value.advice


@pytest.mark.parametrize(
    "changed",
    [{"prepared": Prepared.ADOPTION}, {"prepared": Prepared.LINK}, {"image_digest": "another"}],
    ids=str,
)
def test_what_somebody_else_has_made_is_not_replaced_to_verify_it(
    web: Web,
    trusting: Glance,
    publisher: Signer,
    content: bytes,
    store: LocalTemplates,
    changed: dict[str, Any],
) -> None:
    offer_description(web, content, **publisher.properties(content, CERTIFICATE))
    offer_content(web, content)
    handler = downloading(trusting, store)
    image = trusting.describe(ImageId(ID))
    template = handler.fetch_image(image, DiskFormat.RAW)
    other = replace(template, **changed)
    store.put(other)
    with pytest.raises(ImageRefused, match="was made without verifying the signature"):
        handler.fetch_image(replace(image, trusted=(CERTIFICATE,)), DiskFormat.RAW)
    assert handler.fetch_image(image, DiskFormat.RAW) == other


def test_what_was_not_signed_takes_the_place_of_no_template(
    web: Web, trusting: Glance, publisher: Signer, content: bytes, store: LocalTemplates
) -> None:
    offer_description(web, content, **publisher.properties(content + b"X", CERTIFICATE))
    offer_content(web, content)
    handler = downloading(trusting, store)
    image = trusting.describe(ImageId(ID))
    template = handler.fetch_image(image, DiskFormat.RAW)
    with pytest.raises(ImageRefused, match="it is not what was signed"):
        handler.fetch_image(replace(image, trusted=(CERTIFICATE,)), DiskFormat.RAW)
    assert handler.fetch_image(image, DiskFormat.RAW) == template


def test_what_certificates_are_trusted_for_is_linked_from_nowhere(
    web: Web, trusting: Glance, content: bytes
) -> None:
    offer_description(web, content, direct_url="rbd://cluster/images/one/snap")
    image = trusting.describe(ImageId(ID))
    assert trusting.locations(image) == ("rbd://cluster/images/one/snap",)
    assert trusting.locations(replace(image, trusted=(CERTIFICATE,))) == ()
