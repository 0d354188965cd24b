"""Signed images of a real Glance, with certificates in a real Barbican."""

import base64
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.guests import MicroGuest
from tests.support.image_files import raw_file
from tests.support.keystone_pages import AUTH, offer_keystone
from tests.support.millpond import Millpond
from tests.support.openstack.barbican import Barbican
from tests.support.openstack.glance import Glance
from tests.support.signing import Signer, signer
from tests.support.web import Answer, serving

NOBODYS = "00000000-0000-4000-8000-000000000000"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(scope="module")
def root() -> Signer:
    return signer("root")


@pytest.fixture(scope="module")
def publisher(root: Signer) -> Signer:
    return signer("publisher", issuer=root)


@dataclass
class Cloud:
    """A host that takes signed images alone."""

    glance: Glance
    barbican: Barbican
    millpond: Millpond
    workdir: Path
    made: list[str] = field(default_factory=list)

    def configure(
        self, glance: str = "", barbican: str | None = None, http: str = "", auth: str = "none"
    ) -> None:
        endpoint = self.barbican.url if barbican is None else barbican
        self.millpond.configure(
            "images_type_mapping = raw:qcow2\n"
            "[DEFAULT]\nimage_source = glance\n"
            f"[glance]\nauth_type = {auth}\nendpoint_override = {self.glance.url}\n"
            f"verify_glance_signatures = true\n{glance}\n"
            f"[http]\n{http}\n"
            + (f"[barbican]\nbarbican_endpoint = {endpoint}\n" if endpoint else "")
        )

    def trust(self, *ids: str) -> None:
        self.configure(
            "enable_certificate_validation = true\n"
            f"default_trusted_certificate_ids = {', '.join(ids)}"
        )

    def upload(self, path: Path, **properties: str) -> None:
        # Only then, because Glance itself would verify what is uploaded with a signature.
        image = self.glance.upload(path, "raw")
        self.glance.api.update_image(image.id, **properties)
        self.made.append(image.id)

    def refusal(self) -> str:
        """What is said of the image; and nothing of it is left."""
        status, message = self.millpond.fails("cache", "fetch", "guest")
        assert status == 5, message
        self.has_nothing()
        return message

    def has_nothing(self) -> None:
        beside = self.millpond.bases.with_name("_base.millpond")
        assert not self.millpond.bases.exists() or os.listdir(self.millpond.bases) == []
        for directory in ("records", "incoming"):
            assert not list((beside / directory).glob("*"))


@pytest.fixture
def cloud(
    glance: Glance, barbican: Barbican, millpond: Millpond, workdir: Path
) -> Iterator[Cloud]:
    cloud = Cloud(glance=glance, barbican=barbican, millpond=millpond, workdir=workdir)
    cloud.configure()
    yield cloud
    for id in cloud.made:
        glance.api.delete_image(id)


@pytest.fixture
def disk(workdir: Path) -> Path:
    return raw_file(workdir).rename(workdir / "guest")


def test_a_server_boots_from_a_signed_image(
    cloud: Cloud, publisher: Signer, micro_guest: MicroGuest, workdir: Path
) -> None:
    guest = workdir / "guest"
    guest.write_bytes(micro_guest.path.read_bytes())
    id = cloud.barbican.keep(publisher.certificate)
    cloud.upload(guest, **publisher.properties(guest.read_bytes(), id))

    made = cloud.millpond.json("server", "create", "web", "--image", "guest", "--memory", "32M")

    assert micro_guest.marker in cloud.millpond.wait_for_console(made["id"], "READY")
    cloud.millpond.ok("server", "delete", "web")


def test_a_signature_on_an_elliptic_curve_by_a_trusted_certificate_is_good(
    cloud: Cloud, root: Signer, disk: Path
) -> None:
    one = signer("on a curve", issuer=root, key=ec.generate_private_key(ec.SECP384R1()))
    cloud.upload(disk, **one.properties(disk.read_bytes(), cloud.barbican.keep(one.certificate)))
    cloud.trust(cloud.barbican.keep(root.certificate))
    [fetched] = cloud.millpond.json("cache", "fetch", "guest")
    assert (cloud.millpond.bases / fetched["volume"]).read_bytes() == disk.read_bytes()


def test_barbican_is_found_in_keystones_catalogue_by_glances_user(
    cloud: Cloud, publisher: Signer, disk: Path
) -> None:
    id = cloud.barbican.keep(publisher.certificate)
    cloud.upload(disk, **publisher.properties(disk.read_bytes(), id))
    with serving() as web:
        auth_url = offer_keystone(web, image=cloud.glance.url, key_manager=cloud.barbican.url)
        user = AUTH | {"auth_url": auth_url}
        stated = "\n".join(f"{name} = {value}" for name, value in user.items())
        cloud.configure(stated, auth="password", barbican="")
        cloud.millpond.ok("cache", "fetch", "guest")
    assert [json.loads(each)["auth"]["scope"] for each in web.posted] == [
        {"project": {"name": "service", "domain": {"name": "Default"}}}
    ]


def test_an_image_without_a_signature_is_refused(cloud: Cloud, disk: Path) -> None:
    cloud.upload(disk)
    message = cloud.refusal()
    assert "image guest is refused: it is not signed\n" in message
    assert "img_signature, img_signature_hash_method" in message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(
            {"img_signature": base64.b64encode(bytes(256)).decode()},
            "it is not what was signed with certificate {id}",
            id="signature",
        ),
        pytest.param(
            {"img_signature_certificate_uuid": NOBODYS},
            f"the key manager has no certificate {NOBODYS}, with which it is signed",
            id="no such certificate",
            marks=pytest.mark.full,
        ),
        pytest.param(
            {"img_signature_certificate_uuid": "../containers/1"},
            "the key manager has no certificate ../containers/1",
            id="certificate elsewhere",
            marks=pytest.mark.full,
        ),
        pytest.param(
            {"img_signature_certificate_uuid": "publisher"},
            "the key manager has no certificate publisher",
            id="no id at all",
        ),
    ],
)
def test_a_wrong_property_is_refused(
    cloud: Cloud, publisher: Signer, disk: Path, change: dict[str, str], said: str
) -> None:
    id = cloud.barbican.keep(publisher.certificate)
    cloud.upload(disk, **publisher.properties(disk.read_bytes(), id) | change)
    assert f"image guest is refused: {said.format(id=id)}" in cloud.refusal()


def test_what_is_no_certificate_is_refused(cloud: Cloud, publisher: Signer, disk: Path) -> None:
    id = cloud.barbican.keep_bytes(b"-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n")
    cloud.upload(disk, **publisher.properties(disk.read_bytes(), id))
    assert f"the key manager has no certificate {id}, with which it is signed" in cloud.refusal()


def test_a_signature_of_other_bytes_is_refused(
    cloud: Cloud, publisher: Signer, disk: Path
) -> None:
    id = cloud.barbican.keep(publisher.certificate)
    cloud.upload(disk, **publisher.properties(disk.read_bytes()[:-1] + b"X", id))
    assert f"it is not what was signed with certificate {id}\n" in cloud.refusal()


def test_the_signature_of_somebody_else_is_refused(
    cloud: Cloud, root: Signer, publisher: Signer, disk: Path
) -> None:
    id = cloud.barbican.keep(signer("publisher", issuer=root).certificate)
    cloud.upload(disk, **publisher.properties(disk.read_bytes(), id))
    assert f"it is not what was signed with certificate {id}\n" in cloud.refusal()


def test_a_certificate_of_nobody_who_is_trusted_is_refused(
    cloud: Cloud, root: Signer, publisher: Signer, disk: Path
) -> None:
    """Of the same name as one that is, and valid in itself."""
    stranger = signer("publisher", issuer=signer("root"))
    id = cloud.barbican.keep(stranger.certificate)
    cloud.upload(disk, **stranger.properties(disk.read_bytes(), id))
    cloud.trust(cloud.barbican.keep(root.certificate), NOBODYS)
    message = cloud.refusal()
    assert f"certificate {id}, with which it is signed, leads to no trusted one\n" in message
    assert f"the key manager has no certificate {NOBODYS}, which is trusted" in message


def test_a_certificate_that_has_expired_is_refused(cloud: Cloud, root: Signer, disk: Path) -> None:
    late = signer("late", issuer=root, days=0)
    id = cloud.barbican.keep(late.certificate)
    cloud.upload(disk, **late.properties(disk.read_bytes(), id))
    cloud.trust(cloud.barbican.keep(root.certificate))
    assert f"certificate {id}, with which it is signed, is valid from" in cloud.refusal()


def test_a_dead_key_manager_is_an_error_and_the_next_try_succeeds(
    cloud: Cloud, publisher: Signer, disk: Path
) -> None:
    id = cloud.barbican.keep(publisher.certificate)
    cloud.upload(disk, **publisher.properties(disk.read_bytes(), id))
    cloud.barbican.stop()
    try:
        status, message = cloud.millpond.fails("cache", "fetch", "guest")
    finally:
        cloud.barbican.start()
    assert status == 9
    assert (
        f"cannot fetch certificate {id} of the key manager: it, or Keystone, cannot be reached"
        in message
    )
    assert message.count("millpond: ") == 1
    cloud.has_nothing()
    cloud.millpond.ok("cache", "fetch", "guest")


def test_a_silent_key_manager_is_an_error_in_time(
    cloud: Cloud, publisher: Signer, disk: Path
) -> None:
    cloud.upload(disk, **publisher.properties(disk.read_bytes(), NOBODYS))
    with serving() as web:
        for path in ("", "/"):
            web.offer(path, b"{}", usual=Answer(hang=0))
        cloud.configure(barbican=web.url(""), http="read_timeout = 1")
        status, message = cloud.millpond.fails("cache", "fetch", "guest")
    assert status == 9
    assert "of the key manager: it has not answered for 1 s" in message
    cloud.has_nothing()


def test_a_key_manager_that_does_not_exist_is_an_error(cloud: Cloud, disk: Path) -> None:
    cloud.upload(disk, **signer("any").properties(disk.read_bytes(), NOBODYS))
    cloud.configure()
    with cloud.millpond.config.open("a") as config:
        config.write("[key_manager]\nbackend = barbicann\n")
    status, message = cloud.millpond.fails("cache", "fetch", "guest")
    assert status == 2
    assert "[key_manager] backend: castellan cannot load 'barbicann'" in message
    cloud.has_nothing()
