"""Servers' images out of a real Glance."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha512
from pathlib import Path

import pytest

from millpond.errors import (
    Ambiguous,
    FetchFailed,
    FetchInterrupted,
    ImageNotActive,
    ImageNotFound,
    ImageRefused,
)
from millpond.images.glance import Glance as Source
from millpond.images.receive import receive
from millpond.model.cloud import CloudAccess
from millpond.model.formats import ImageFormat
from millpond.model.image import Image
from millpond.model.names import ImageId
from millpond.model.transfer import Patience
from tests.support.guests import MicroGuest
from tests.support.image_files import MiB, converted, iso_file, raw_file
from tests.support.millpond import Millpond
from tests.support.openstack.glance import Glance


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def access(url: str, retries: int = 1) -> CloudAccess:
    return CloudAccess(
        cloud="",
        auth_type="none",
        auth={},
        endpoint_override=url,
        region_name="",
        cafile="",
        insecure=False,
        patience=Patience(connect_seconds=2, read_seconds=10, retries=retries),
    )


@pytest.fixture
def source(glance: Glance) -> Source:
    return Source(access(glance.url))


@pytest.fixture
def disk(workdir: Path) -> Path:
    return raw_file(workdir)


Upload = Callable[..., str]


@pytest.fixture
def upload(glance: Glance, workdir: Path) -> Iterator[Upload]:
    made: list[str] = []

    def upload(path: Path, disk_format: str, container: str = "bare", **properties: str) -> str:
        image = glance.upload(path, disk_format, container=container)
        if properties:
            glance.api.update_image(image.id, **properties)
        made.append(image.id)
        return image.id

    yield upload
    for id in made:
        glance.api.delete_image(id)


def received(source: Source, image: Image, target: Path) -> bytes:
    receive(source.open(image), target, image.format, image.name)
    return target.read_bytes()


def test_an_image_is_described_and_received(
    source: Source, upload: Upload, disk: Path, workdir: Path
) -> None:
    qcow2 = converted(disk, "qcow2")
    id = upload(qcow2, "qcow2", hw_disk_bus="scsi", of_mine="a", os_command_line="quiet")

    image = source.describe(ImageId(id))

    assert (image.name, image.format, image.id) == (qcow2.name, ImageFormat.QCOW2, id)
    assert (image.size, image.virtual_size) == (qcow2.stat().st_size, 4 * MiB)
    assert (image.digest_algorithm, image.digest) == (
        "sha512",
        sha512(qcow2.read_bytes()).hexdigest(),
    )
    said = {"hw_disk_bus": "scsi", "of_mine": "a", "os_command_line": "quiet"}
    assert said.items() <= image.properties.items()
    assert not {"stores", "os_hash_algo", "os_hidden", "id"} & image.properties.keys()
    assert received(source, image, workdir / "received") == qcow2.read_bytes()
    assert b"".join(source.open(image).chunks(65536)) == qcow2.read_bytes()[65536:]
    [location] = source.locations(image)
    assert location.startswith("file://")
    assert source.local_file(image) is None


@pytest.mark.parametrize(
    ("disk_format", "qemu_format", "container"),
    [("ploop", "parallels", "bare"), ("qcow2", "qcow2", "ami"), ("vhdx", "vhdx", "ami")],
)
def test_what_glance_does_not_look_into_is_looked_into(
    source: Source,
    glance: Glance,
    upload: Upload,
    disk: Path,
    workdir: Path,
    disk_format: str,
    qemu_format: str,
    container: str,
) -> None:
    path = converted(disk, qemu_format)
    id = upload(path, disk_format, container)
    assert glance.api.get_image(id).virtual_size is None
    image = source.describe(ImageId(id))
    assert image.virtual_size == source.get(path.name).virtual_size == 4 * MiB
    assert received(source, image, workdir / "received") == path.read_bytes()


def test_a_hybrid_iso_is_as_large_as_its_file(
    source: Source, glance: Glance, upload: Upload, workdir: Path
) -> None:
    disc = iso_file(workdir)
    with disc.open("ab") as file:
        file.write(bytes(MiB))
    id = upload(disc, "iso")
    stated = glance.api.get_image(id).virtual_size
    image = source.describe(ImageId(id))
    assert stated < image.virtual_size == disc.stat().st_size


def test_an_image_is_found_by_name_id_and_prefix(
    source: Source, upload: Upload, disk: Path, workdir: Path
) -> None:
    first, second = upload(disk, "raw"), upload(disk, "raw")
    alone = upload(disk.rename(workdir / "alone"), "raw")
    assert {each.id for each in source.all()} >= {first, second, alone}
    assert source.get("alone").id == source.get(alone).id == alone
    assert source.get(alone[:13], shortened=True).id == alone
    with pytest.raises(Ambiguous, match=first):
        source.get(disk.name)
    for text in (alone[:13], "gone", "", "00000000-0000-4000-8000-000000000000"):
        with pytest.raises(ImageNotFound):
            source.get(text)


def test_what_cannot_be_used_is_refused_and_not_listed(
    source: Source, glance: Glance, upload: Upload, disk: Path
) -> None:
    queued = glance.api.create_image("queued", disk_format="raw", container_format="bare")
    idle = upload(disk, "raw")
    glance.api.deactivate_image(idle)
    with pytest.raises(ImageNotActive, match="'queued' cannot be used now"):
        source.get("queued")
    with pytest.raises(ImageNotActive, match="'deactivated'"):
        source.get(idle)
    assert not {queued.id, idle} & {each.id for each in source.all()}
    glance.api.delete_image(queued)


def test_content_that_changed_in_its_store_is_refused(
    source: Source, glance: Glance, upload: Upload, disk: Path, workdir: Path
) -> None:
    image = source.describe(ImageId(upload(disk, "raw")))
    with (glance.files / image.id).open("r+b") as file:
        file.write(b"X")
    with pytest.raises(ImageRefused, match="its sha512 is not the one that was stated"):
        received(source, image, workdir / "received")
    assert not (workdir / "received").exists()


def test_content_that_is_gone_is_an_error(
    source: Source, glance: Glance, upload: Upload, disk: Path, workdir: Path
) -> None:
    image = source.describe(ImageId(upload(disk, "raw")))
    (glance.files / image.id).rename(workdir / "kept")
    with pytest.raises(FetchFailed, match=f"image {image.id} of Glance: its server answers"):
        received(source, image, workdir / "received")
    (workdir / "kept").rename(glance.files / image.id)


def test_a_dead_glance_is_an_error() -> None:
    with pytest.raises(FetchInterrupted, match="cannot be reached"):
        Source(access("http://127.0.0.1:9", retries=0)).get("guest")


def test_the_command_sees_glances_images(
    glance: Glance, upload: Upload, disk: Path, workdir: Path
) -> None:
    id = upload(disk.rename(workdir / "guest"), "raw")
    config = workdir / "millpond.conf"
    config.write_text(
        f"[DEFAULT]\nstate_path = {workdir / 'state'}\nimage_source = glance\n"
        f"[glance]\nauth_type = none\nendpoint_override = {glance.url}\n"
    )

    def millpond(*words: str) -> subprocess.CompletedProcess[str]:
        program = "from millpond.cli.main import main; main()"
        called = [sys.executable, "-c", program, "--config-file", str(config), *words]
        return subprocess.run(called, capture_output=True, text=True, timeout=60, env=os.environ)

    listed = json.loads(millpond("image", "list", "--json").stdout)
    assert id in {each["id"] for each in listed}
    assert json.loads(millpond("image", "show", "guest", "--json").stdout)["id"] == id
    explained = millpond("explain", "guest")
    assert "raw" in explained.stdout, explained.stderr
    refused = millpond("image", "add", str(workdir / "guest"), "--disk-format", "raw")
    assert (refused.returncode, refused.stdout) == (5, "")
    assert "image_source = glance" in refused.stderr


def test_a_server_boots_from_an_image_of_glances(
    glance: Glance, upload: Upload, millpond: Millpond, micro_guest: MicroGuest, workdir: Path
) -> None:
    guest = workdir / "micro"
    guest.write_bytes(micro_guest.path.read_bytes())
    upload(guest, "raw")
    millpond.configure(
        "images_type_mapping = raw:qcow2\n"
        f"[DEFAULT]\nimage_source = glance\n"
        f"[glance]\nauth_type = none\nendpoint_override = {glance.url}"
    )
    made = millpond.json("server", "create", "web", "--image", "micro", "--memory", "32M")
    assert micro_guest.marker in millpond.wait_for_console(made["id"], "READY")
    again = millpond.json("server", "create", "other", "--image", "micro", "--memory", "32M")
    assert again["disks"][0]["template"] == made["disks"][0]["template"]
    millpond.ok("server", "delete", "web")
    millpond.ok("server", "delete", "other")


def test_a_server_boots_from_what_glance_did_not_look_into(
    glance: Glance, upload: Upload, millpond: Millpond, micro_guest: MicroGuest, workdir: Path
) -> None:
    guest = workdir / "micro.raw"
    guest.write_bytes(micro_guest.path.read_bytes())
    upload(converted(guest, "parallels").rename(workdir / "micro-ploop"), "ploop")
    upload(converted(guest, "qcow2").rename(workdir / "micro-ami"), "qcow2", "ami")
    millpond.configure(
        "images_type_mapping = ploop:qcow2, qcow2:raw\n"
        f"[DEFAULT]\nimage_source = glance\n"
        f"[glance]\nauth_type = none\nendpoint_override = {glance.url}"
    )
    for name in ("micro-ploop", "micro-ami"):
        size = millpond.json("image", "show", name)["virtual_size"]
        made = millpond.json("server", "create", name, "--image", name, "--memory", "32M")
        assert made["disks"][0]["size"] == size
        assert micro_guest.marker in millpond.wait_for_console(made["id"], "READY")
        millpond.fails("server", "create", "small", "--image", name, "--disk", "512B")
        assert [each["name"] for each in millpond.json("server", "list")] == [name]
        millpond.ok("server", "delete", name)
