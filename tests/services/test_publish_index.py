"""The index of an image in a real Glance: properties, and an image that no list shows."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.images.glance import Glance as Source
from millpond.images.index import INDEX_CHUNK
from tests.services.test_glance_source import access
from tests.services.test_upload import incoming, on_glance
from tests.support.image_files import MiB, raw_file
from tests.support.millpond import Millpond
from tests.support.openstack.glance import Glance

__all__ = ["on_glance"]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, glance: Glance) -> Iterator[None]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield
    for each in [*glance.api.images(), *glance.api.images(is_hidden=True)]:
        glance.api.delete_image(each)


@pytest.fixture
def content(glance: Glance, workdir: Path) -> bytes:
    path = raw_file(workdir, 2 * MiB)
    glance.upload(path, "raw")
    return path.read_bytes()


def digests(content: bytes) -> bytes:
    parts = (content[at : at + INDEX_CHUNK] for at in range(0, len(content), INDEX_CHUNK))
    return b"".join(hashlib.sha256(part).digest() for part in parts)


def test_an_index_is_published_and_found_by_whoever_reads_the_image(
    glance: Glance, on_glance: Millpond, content: bytes
) -> None:
    [image] = glance.api.images()
    shown = on_glance.json("image", "publish-index", image.name)

    root = hashlib.sha256(digests(content)).hexdigest()
    assert shown["index_root"] == root
    assert [each.id for each in glance.api.images()] == [image.id]
    [hidden] = glance.api.images(is_hidden=True)
    assert (hidden.name, hidden.size) == (f"{image.name}.index", len(digests(content)))
    assert hidden.properties["millpond_list_of"] == image.id
    source = Source(access(glance.url))
    found = source.find_index(source.get(image.name))
    assert found
    assert (found.size, found.digests) == (len(content), digests(content))
    assert root in on_glance.run("image", "show", image.name).stdout
    assert incoming(on_glance) == []

    on_glance.json("image", "publish-index", image.name)  # it is there already
    assert [each.id for each in glance.api.images(is_hidden=True)] == [hidden.id]


def test_a_list_that_the_root_is_not_of_is_none(
    glance: Glance, on_glance: Millpond, content: bytes
) -> None:
    """Lost, or somebody else's; a new one is published."""
    [image] = glance.api.images()
    on_glance.json("image", "publish-index", image.name)
    source = Source(access(glance.url))
    [hidden] = glance.api.images(is_hidden=True)
    glance.api.update_image(image.id, millpond_index_list=image.id)
    assert source.find_index(source.get(image.name)) is None
    glance.api.update_image(image.id, millpond_index_list=hidden.id, millpond_index_root="0" * 64)
    assert source.find_index(source.get(image.name)) is None
    glance.api.delete_image(hidden.id)
    assert source.find_index(source.get(image.name)) is None

    on_glance.json("image", "publish-index", image.name)
    found = source.find_index(source.get(image.name))
    assert found
    assert found.digests == digests(content)


def test_properties_that_another_image_inherited_say_nothing_of_it(
    glance: Glance, on_glance: Millpond, content: bytes, workdir: Path
) -> None:
    [image] = glance.api.images()
    on_glance.json("image", "publish-index", image.name)
    stated = {
        key: value
        for key, value in glance.api.get_image(image.id).properties.items()
        if key.startswith("millpond_index_")
    }
    assert len(stated) == 3
    (other := workdir / "other").write_bytes(content[::-1])
    heir = glance.upload(other, "raw")
    glance.api.update_image(heir.id, **stated)

    source = Source(access(glance.url))
    assert source.get(heir.id).index_root == ""
    assert source.find_index(source.get(heir.id)) is None


def test_an_index_that_cannot_be_stated_leaves_no_list(
    glance: Glance, on_glance: Millpond, content: bytes
) -> None:
    [image] = glance.api.images()
    glance.rule(modify_image="!")
    try:
        code, words = on_glance.fails("image", "publish-index", image.name)
    finally:
        glance.rule(modify_image="@")
    assert code != 0
    assert "403" in words
    assert list(glance.api.images(is_hidden=True)) == []
    assert incoming(on_glance) == []
