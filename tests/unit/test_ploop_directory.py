"""Ploop directories: one plain file inside, or refused with the reason."""

import os
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond.errors import FileNotReadable, ImageRefused, MillpondError
from millpond.images.formats.ploop_directory import DESCRIPTOR, image_file
from millpond.images.intake import Intake
from millpond.model.formats import ImageFormat
from tests.support.image_files import MiB, converted, raw_file
from tests.support.ploop_directories import EARLIER, descriptor, image, shot


@pytest.fixture
def ploop(tmp_path: Path) -> Path:
    """A directory with an image of 4 MiB, as it should be."""
    made = tmp_path / "guest.hdd"
    made.mkdir()
    converted(raw_file(tmp_path), "parallels").rename(made / "root.hds")
    (made / DESCRIPTOR).write_text(descriptor(image()))
    return made


@pytest.fixture
def catalogue(tmp_path: Path) -> Intake:
    return Intake(tmp_path / "images")


def refusal(catalogue: Intake, ploop: Path) -> str:
    with pytest.raises((ImageRefused, FileNotReadable)) as caught:
        catalogue.add(ploop, name="guest")
    assert catalogue.all() == []
    assert catalogue.leftovers() == []
    return f"{caught.value}; {caught.value.advice}"


def test_a_directory_is_added_as_the_image_in_it(catalogue: Intake, ploop: Path) -> None:
    (ploop / "root.hds.lck").write_bytes(b"")
    added = catalogue.add(ploop)
    assert (added.name, added.format, added.virtual_size) == ("guest", ImageFormat.PLOOP, 4 * MiB)
    assert catalogue.local_file(added).read_bytes() == (ploop / "root.hds").read_bytes()


def test_the_directory_above_is_enough(catalogue: Intake, ploop: Path, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    ploop.rename(tmp_path / "private" / "root.hdd")
    assert catalogue.add(tmp_path / "private").name == "private"


def test_the_directory_that_one_is_in_has_a_name(
    catalogue: Intake, ploop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ploop)
    assert catalogue.add(Path(".")).name == "guest"


def test_a_directory_of_something_else_is_no_image(catalogue: Intake, tmp_path: Path) -> None:
    assert f"a directory without a {DESCRIPTOR}" in refusal(catalogue, tmp_path)


def test_a_directory_is_inspected_as_what_it_is_declared(catalogue: Intake, ploop: Path) -> None:
    with pytest.raises(ImageRefused, match="declared as raw, but its content is ploop"):
        catalogue.add(ploop, format=ImageFormat.RAW)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (descriptor(""), "names no image"),
        (descriptor(image(), storages=2), "its disk is in 2 parts; join them"),
        (
            descriptor(image(id=EARLIER) + image("top.hds"), shot(EARLIER) + shot()),
            "it has snapshots, which spread its disk over 2 files; merge them first: ploop "
            "snapshot-merge -A",
        ),
        (descriptor(image() + image("top.hds")), "over 2 files"),
        (descriptor(image(), shot(EARLIER) + shot()), "over 2 files"),
        (descriptor(image(type="Plain")), "of the type 'Plain'; if it is a raw disk, add that"),
        (descriptor(image("gone.hds")), "No such file"),
        (descriptor(image("/etc/passwd")), "names no file in it: '/etc/passwd'"),
        (descriptor(image("../guest.hds")), "names no file in it: '../guest.hds'"),
        (descriptor(image("inner/root.hds")), "names no file in it"),
        (descriptor(image("..")), "names no file in it: '..'"),
        (descriptor(image("")), "names no file in it: ''"),
        (descriptor(image(DESCRIPTOR)), "declared as ploop, but its content is not"),
        ("<Disk/>", "names no image"),
        ("", "it is not well-formed"),
        ("<Parallels_disk_image>", "it is not well-formed"),
        (descriptor(image()) + " " * MiB, "it is too long"),
    ],
)
def test_what_is_not_one_plain_image_is_refused(
    catalogue: Intake, ploop: Path, content: str, sentence: str
) -> None:
    (ploop / DESCRIPTOR).write_text(content)
    assert sentence in refusal(catalogue, ploop)


def test_entities_are_neither_followed_nor_multiplied(
    catalogue: Intake, ploop: Path, tmp_path: Path
) -> None:
    (tmp_path / "name").write_text("root.hds")
    outside = f'<!DOCTYPE x [<!ENTITY e SYSTEM "file://{tmp_path}/name">]>'
    (ploop / DESCRIPTOR).write_text(descriptor(image("&e;"), before=outside))
    assert "names no file in it" in refusal(catalogue, ploop)
    laughs = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    many = f'<!DOCTYPE x [<!ENTITY e0 "root.hds">{laughs}]>'
    (ploop / DESCRIPTOR).write_text(descriptor(image("&e11;"), before=many))
    assert "refused" in refusal(catalogue, ploop)


@pytest.mark.parametrize("name", [DESCRIPTOR, "root.hds"])
def test_links_and_what_is_no_file_are_refused(
    catalogue: Intake, ploop: Path, tmp_path: Path, name: str
) -> None:
    real = (ploop / name).rename(tmp_path / "elsewhere")
    (ploop / name).symlink_to(real)
    assert "it is a symbolic link" in refusal(catalogue, ploop)
    (ploop / name).unlink()
    os.mkfifo(ploop / name)
    assert "it is not a plain file" in refusal(catalogue, ploop)


def test_a_bundle_behind_a_link_is_not_entered(
    catalogue: Intake, ploop: Path, tmp_path: Path
) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "root.hdd").symlink_to(ploop)
    assert "without a" in refusal(catalogue, tmp_path / "private")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=40))
def test_whatever_is_named_lies_in_the_directory(ploop: Path, name: str) -> None:
    (ploop / DESCRIPTOR).write_text(descriptor(image(escape(name))))
    try:
        found = image_file(ploop)
    except ImageRefused:
        return
    assert found.parent == ploop
    assert found.name not in ("", ".", "..")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_any_descriptor_gets_an_answer(ploop: Path, content: bytes) -> None:
    (ploop / DESCRIPTOR).write_bytes(content)
    with pytest.raises(MillpondError):
        image_file(ploop)
