"""Certificates that a user trusts: our driver with a real Glance and a real Barbican, and no
cloud."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.image_files import raw_file
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.openstack import driver_alone
from tests.support.openstack.barbican import Barbican
from tests.support.openstack.environment import reason_to_skip
from tests.support.openstack.glance import Glance
from tests.support.signing import signer

pytestmark = [pytest.mark.timeout(300), pytest.mark.full]


@pytest.fixture(scope="module")
def services(session_directory: Path) -> Iterator[tuple[Glance, Barbican]]:
    if reason := reason_to_skip():
        pytest.skip(reason)
    with (
        Glance(session_directory / "trusted-glance") as glance,
        Barbican(session_directory / "trusted-barbican") as barbican,
    ):
        yield glance, barbican


def test_a_server_that_trusts_certificates_is_made_of_what_was_signed_and_of_nothing_else(
    services: tuple[Glance, Barbican], session_directory: Path, tmp_path: Path
) -> None:
    """The template of every image is there already, made for somebody who asked for nothing."""
    glance, barbican = services
    root = signer("root")
    publisher, stranger = signer("publisher", issuer=root), signer("stranger")
    trusted, known = barbican.keep(root.certificate), barbican.keep(publisher.certificate)
    unknown = barbican.keep(stranger.certificate)
    disk = raw_file(tmp_path)
    content = disk.read_bytes()
    signed = {
        "good": publisher.properties(content, known),
        "changed": publisher.properties(content + b"X", known),
        "stranger's": stranger.properties(content, unknown),
        "unsigned": {},
    }
    for name, properties in signed.items():
        image = glance.upload(disk.rename(tmp_path / name), "raw")
        disk = tmp_path / name
        glance.api.update_image(image.id, **properties)
    options = {
        "glance": {
            "auth_type": "none",
            "endpoint_override": glance.url,
            "default_trusted_certificate_ids": trusted,
        },
        "barbican": {"barbican_endpoint": barbican.url},
    }
    with PrivateLibvirtd(session_directory / "trusted", name="pond") as libvirtd:
        ran = driver_alone.run(libvirtd.directory, libvirtd, ("trusted_certificates",), options)
    came: dict[str, Any] = ran["trusted_certificates"]
    assert came["traits"]["COMPUTE_TRUSTED_CERTS"] is True
    assert came["of the server"] == came["ids"] == [trusted]
    assert [came[name]["nobody"] for name in signed] == [""] * len(signed)
    said = {name: came[name]["trusting"] for name in signed}
    assert said["good"] == ""
    assert said["changed"].startswith("ImageUnacceptable")
    assert f"it is not what was signed with certificate {known}" in said["changed"]
    assert "leads to no trusted one" in said["stranger's"]
    assert "it is not signed" in said["unsigned"]
    assert "leads to no trusted one" in came["good"]["trusting others"]
