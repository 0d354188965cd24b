"""Snapshots of servers go where images come from: a real Glance."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from millpond.errors import UploadFailed
from millpond.images.glance import Glance as Source
from millpond.images.source import Upload
from millpond.model.formats import ImageFormat
from millpond.model.names import ImageId
from tests.services.test_glance_source import access
from tests.support import dying_upload
from tests.support.guests import MicroGuest
from tests.support.image_files import MiB, raw_file
from tests.support.millpond import Millpond
from tests.support.openstack.glance import Glance


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(autouse=True)
def _no_images_stay(glance: Glance) -> Iterator[None]:
    yield
    for each in [*glance.api.images(), *glance.api.images(is_hidden=True)]:
        glance.api.delete_image(each)


@pytest.fixture
def on_glance(glance: Glance, millpond: Millpond) -> Millpond:
    millpond.configure(
        "images_type_mapping = raw:qcow2, qcow2:qcow2\n"
        f"[DEFAULT]\nimage_source = glance\n"
        f"[glance]\nauth_type = none\nendpoint_override = {glance.url}"
    )
    return millpond


@pytest.fixture
def booted(
    glance: Glance, on_glance: Millpond, micro_guest: MicroGuest, workdir: Path
) -> Iterator[str]:
    """A server that has booted once."""
    guest = workdir / "micro"
    guest.write_bytes(micro_guest.path.read_bytes())
    image = glance.upload(guest, "raw")
    said = {"hw_vif_model": "e1000", "img_signature": "of other bytes", "mine": "yes"}
    glance.api.update_image(image.id, **said)
    words = ("--image", "micro", "--memory", "32M", "--network", "none")
    made = on_glance.json("server", "create", "web", *words)
    on_glance.wait_for_console(made["id"], "READY")
    yield made["id"]
    on_glance.ok("server", "delete", "web")


def incoming(millpond: Millpond) -> list[Path]:
    return list((millpond.state / "images" / "incoming").iterdir())


def test_a_snapshot_goes_to_glance_and_boots(
    glance: Glance, on_glance: Millpond, booted: str
) -> None:
    image = on_glance.json("server", "snapshot", "web", "snap")

    found = glance.api.get_image(image["id"])
    assert (found.name, found.status, found.disk_format) == ("snap", "active", "qcow2")
    assert (image["digest"], image["size"]) == (found.hash_value, found.size)
    assert image["virtual_size"] == found.virtual_size == MiB
    assert {"hw_vif_model": "e1000", "mine": "yes"}.items() <= image["properties"].items()
    assert "img_signature" not in image["properties"]
    assert image["index_root"] == found.properties["millpond_index_root"]
    assert Source(access(glance.url)).find_index(Source(access(glance.url)).get("snap"))
    assert incoming(on_glance) == []
    words = ("--image", "snap", "--memory", "32M", "--network", "none")
    made = on_glance.json("server", "create", "again", *words)
    on_glance.wait_for_console(made["id"], "BOOTS 0002")
    on_glance.ok("server", "delete", "again")


def test_what_glance_does_not_take_leaves_nothing(
    glance: Glance, on_glance: Millpond, booted: str
) -> None:
    glance.rule(upload_image="!")
    try:
        code, words = on_glance.fails("server", "snapshot", "web", "snap", "--format", "raw")
    finally:
        glance.rule(upload_image="@")
    assert code == 9
    assert "image snap cannot be uploaded: its server answers 403 (Forbidden)" in words
    assert [each.name for each in glance.api.images()] == ["micro"]
    assert incoming(on_glance) == []
    assert on_glance.json("server", "show", "web")["state"] == "running"


def upload(path: Path, **other: str) -> Upload:
    return Upload(
        id=ImageId(str(uuid4())),
        path=path,
        name="snap",
        format=ImageFormat.RAW,
        size=path.stat().st_size,
        virtual_size=path.stat().st_size,
        digest=other.get("digest") or hashlib.sha512(path.read_bytes()).hexdigest(),
        properties={},
    )


def test_an_interrupted_upload_leaves_no_image(glance: Glance, workdir: Path) -> None:
    told: list[int] = []

    def progress(count: int) -> None:
        told.append(count)
        if len(told) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Source(access(glance.url)).upload(upload(raw_file(workdir)), progress)
    assert list(glance.api.images()) == []


def test_bytes_that_arrived_as_others_are_no_image(glance: Glance, workdir: Path) -> None:
    source, path = Source(access(glance.url)), raw_file(workdir)
    told: list[int] = []
    with pytest.raises(UploadFailed, match="Glance has other bytes than were sent"):
        source.upload(upload(path, digest="0" * 128), told.append)
    assert sum(told) == path.stat().st_size
    assert list(glance.api.images()) == []


def test_the_doctor_names_what_a_kill_left(
    glance: Glance, on_glance: Millpond, workdir: Path
) -> None:
    words = [sys.executable, "-m", dying_upload.__name__, str(on_glance.config)]
    killed = subprocess.run([*words, str(raw_file(workdir))], timeout=60)
    assert killed.returncode == -9
    [half] = glance.api.images()
    assert half.status in ("queued", "saving")

    def found() -> list[str]:
        told = json.loads(on_glance.run("doctor", "--json").stdout)
        return [each["what"] for each in told if each["check"] == "images"]

    assert f"the upload of image 'half' ({half.id}) was interrupted" in found()
    on_glance.run("doctor", "--mend")
    assert list(glance.api.images()) == []
    assert incoming(on_glance) == []
    assert not [each for each in found() if "interrupted" in each and "no operation" not in each]
