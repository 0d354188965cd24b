"""Kernels and ramdisks in the catalogue, and the images that name them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.disks.explain import TemplateStatus, explain
from millpond.disks.selection import Selection
from millpond.errors import BadOption, ImageInUse, ImageNotFound, Unsupported
from millpond.images.intake import Intake
from millpond.model.boot_images import booted_with, find_boot_images
from millpond.model.formats import ImageFormat
from millpond.model.image import Image
from millpond.model.names import template_name
from millpond.templates.handler import LinkPreview
from tests.support.image_files import raw_file

PROSPECTS = TemplateStatus(
    is_prepared=lambda _image, _format, _backend: False,
    preview_link=lambda _image, _format: LinkPreview(),
    is_local=True,
)


@pytest.fixture
def catalogue(tmp_path: Path) -> Intake:
    return Intake(tmp_path / "state" / "images")


@pytest.fixture
def kernel(catalogue: Intake, tmp_path: Path) -> Image:
    path = tmp_path / "vmlinuz-6.1.aki"
    path.write_bytes(b"MZ" + b"k" * 1000)
    return catalogue.add(path)


@pytest.fixture
def ramdisk(catalogue: Intake, tmp_path: Path) -> Image:
    path = tmp_path / "initrd-6.1.ari"
    path.write_bytes(b"\x1f\x8b\x08" + b"r" * 1000)
    return catalogue.add(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return raw_file(tmp_path)


def test_a_kernel_and_a_ramdisk_are_images_as_long_as_they_are(
    kernel: Image, ramdisk: Image
) -> None:
    assert (kernel.name, kernel.format, kernel.size) == ("vmlinuz-6.1", ImageFormat.AKI, 1002)
    assert (ramdisk.name, ramdisk.format, ramdisk.size) == ("initrd-6.1", ImageFormat.ARI, 1003)
    assert (kernel.virtual_size, ramdisk.virtual_size) == (1002, 1003)


def test_names_of_kernel_and_ramdisk_are_kept_as_ids(
    catalogue: Intake, root: Path, kernel: Image, ramdisk: Image
) -> None:
    stated = {"kernel_id": kernel.name, "ramdisk_id": ramdisk.id, "os_command_line": "quiet"}

    image = catalogue.add(root, name="root", format=ImageFormat.AMI, properties=stated)

    assert image.properties == {
        "kernel_id": kernel.id,
        "ramdisk_id": ramdisk.id,
        "os_command_line": "quiet",
    }
    assert booted_with(catalogue.all(), kernel) == ("root",)
    assert booted_with(catalogue.all(), ramdisk) == ("root",)
    assert booted_with(catalogue.all(), image) == ()


def test_a_kernel_alone_is_enough_and_every_disk_may_have_one(
    catalogue: Intake, root: Path, kernel: Image
) -> None:
    image = catalogue.add(root, name="root", properties={"kernel_id": kernel.id, "ramdisk_id": ""})

    found = find_boot_images(image.format, image.properties, catalogue.get)

    assert image.format is ImageFormat.RAW
    assert found
    assert (found.kernel, found.ramdisk) == (kernel, None)


@pytest.mark.parametrize("format", list(ImageFormat))
def test_an_image_that_names_none_boots_by_itself(format: ImageFormat) -> None:
    def nowhere(name: str) -> Image:
        raise AssertionError(name)

    for properties in ({}, {"hw_disk_bus": "ide"}, {"kernel_id": "", "ramdisk_id": ""}):
        assert find_boot_images(format, properties, nowhere) is None


@pytest.mark.usefixtures("kernel", "ramdisk")
@pytest.mark.parametrize(
    ("format", "properties", "error", "sentence"),
    [
        ("ami", {"kernel_id": "gone"}, ImageNotFound, "no image 'gone'"),
        (
            "ami",
            {"kernel_id": "vmlinuz-6.1", "ramdisk_id": "gone"},
            ImageNotFound,
            "no image 'gone'",
        ),
        (
            "ami",
            {"kernel_id": "initrd-6.1"},
            BadOption,
            "kernel_id: image 'initrd-6.1' is declared as ari, not as aki",
        ),
        (
            "raw",
            {"kernel_id": "vmlinuz-6.1", "ramdisk_id": "vmlinuz-6.1"},
            BadOption,
            "ramdisk_id: image 'vmlinuz-6.1' is declared as aki, not as ari",
        ),
        ("ami", {"ramdisk_id": "initrd-6.1"}, BadOption, "ramdisk_id: a ramdisk needs a kernel"),
        ("aki", {"kernel_id": "vmlinuz-6.1"}, BadOption, "an aki image is no disk"),
    ],
)
def test_a_kernel_that_cannot_be_meant_is_refused_before_a_byte_is_read(
    catalogue: Intake,
    root: Path,
    format: str,
    properties: dict[str, str],
    error: type[Exception],
    sentence: str,
) -> None:
    read: list[int] = []

    with pytest.raises(error, match=sentence):
        catalogue.add(
            root,
            name="root",
            format=ImageFormat(format),
            properties=properties,
            progress=read.append,
        )

    assert not read
    assert [each.name for each in catalogue.all()] == ["initrd-6.1", "vmlinuz-6.1"]
    assert catalogue.leftovers() == []


def test_a_kernel_that_goes_while_its_image_arrives_is_missed(
    catalogue: Intake, root: Path, kernel: Image
) -> None:
    def remove(_count: int) -> None:
        if catalogue.find(kernel.id):
            catalogue.remove(kernel)

    with pytest.raises(ImageNotFound, match=kernel.id):
        catalogue.add(root, name="a", properties={"kernel_id": kernel.id}, progress=remove)

    assert catalogue.all() == []
    assert catalogue.leftovers() == []


def test_a_kernel_that_an_image_names_stays(
    catalogue: Intake, root: Path, kernel: Image, ramdisk: Image
) -> None:
    stated = {"kernel_id": kernel.id, "ramdisk_id": ramdisk.id}
    image = catalogue.add(root, name="root", properties=stated)

    for needed in (kernel, ramdisk):
        with pytest.raises(ImageInUse, match="is needed by image 'root'"):
            catalogue.remove(needed)

    for each in (image, kernel, ramdisk):
        catalogue.remove(each)
    assert catalogue.all() == []


def test_the_command_removes_an_image_together_with_its_kernel(
    tmp_path: Path, catalogue: Intake, root: Path, kernel: Image
) -> None:
    config = tmp_path / "millpond.conf"
    config.write_text(f"[DEFAULT]\nstate_path = {tmp_path / 'state'}\n")

    def image(*words: str) -> subprocess.CompletedProcess[str]:
        program = "from millpond.cli.main import main; main()"
        called = [sys.executable, "-c", program, "--config-file", str(config), "image", *words]
        return subprocess.run(called, capture_output=True, text=True, timeout=60, check=False)

    stated = ("--property", f"kernel_id={kernel.name}", "--disk-format", "ami", "--name", "root")
    assert image("add", str(root), *stated).returncode == 0
    assert json.loads(image("show", kernel.name, "--json").stdout)["images"] == ["root"]
    refused = image("remove", kernel.name)
    assert (refused.returncode, "is needed by image 'root'" in refused.stderr) == (4, True)
    assert image("remove", kernel.name, "root").returncode == 0
    assert catalogue.all() == []


def test_what_becomes_of_kernel_and_ramdisk_is_explained(
    catalogue: Intake, root: Path, kernel: Image, ramdisk: Image
) -> None:
    stated = {"kernel_id": kernel.id, "ramdisk_id": ramdisk.id}
    image = catalogue.add(root, name="root", format=ImageFormat.AMI, properties=stated)
    boot = find_boot_images(image.format, image.properties, catalogue.get)

    found = explain(image, boot, Selection(), PROSPECTS)

    assert [(each.content, each.image, each.size) for each in found.boot] == [
        ("kernel", "vmlinuz-6.1", 1002),
        ("ramdisk", "initrd-6.1", 1003),
    ]
    assert [each.template_exists for each in found.boot] == [False, False]
    assert found.boot[0].template == template_name(kernel.id, ImageFormat.AKI.content)
    with pytest.raises(Unsupported, match="a disk from an aki image"):
        explain(kernel, None, Selection(), PROSPECTS)
