"""A cache on a file system that is full: nothing is disowned, and the host comes up."""

import os
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from millpond.errors import NoSpace, StateNotWritable
from millpond.images.catalogue import Catalogue
from millpond.images.intake import Intake
from millpond.model.formats import DiskFormat
from millpond.model.names import template_name
from millpond.records.journal import StepMoment
from millpond.templates.cache_manager import ImageCacheManager, UsageLeases, Uses
from millpond.templates.store import LocalTemplates
from millpond.templates.verdicts import Rules
from tests.support.image_files import MiB, raw_file
from tests.support.preparing import DirectoryPool, handler, kill_at


@pytest.fixture
def place(make_filesystem):
    return make_filesystem("ext4", 64 * MiB).path


@pytest.fixture
def store(place):
    return LocalTemplates(DirectoryPool(place / "_base"))


@pytest.fixture
def image(tmp_path):
    return Intake(tmp_path / "images").add(raw_file(tmp_path), name="guest")


def fill(place: Path) -> Path:
    """To the last block."""
    ballast = place / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (MiB, 4096, 1024):
            with suppress(OSError):
                while file.write(bytes(size)):
                    os.fsync(file.fileno())
    return ballast


@pytest.mark.parametrize(
    ("verb", "step", "moment"),
    [
        ("prepare", "publish", StepMoment.END),
        ("prepare", "record", StepMoment.BEGIN),
    ],
)
def test_a_template_that_was_finished_is_not_disowned(
    place, store, image, tmp_path, verb, step, moment
):
    kill_at(verb, step, moment, store, image, tmp_path)
    name = template_name(image.id, DiskFormat.RAW)
    ballast = fill(place)
    handler(store, tmp_path).init()  # as nova-compute does when it starts
    assert (store.unfinished(), store.has(name)) == ([name], True)
    with pytest.raises(NoSpace):
        handler(store, tmp_path).fetch_image(image, DiskFormat.RAW)
    ballast.unlink()
    inode = (store.cache / name).stat().st_ino
    template = handler(store, tmp_path).fetch_image(image, DiskFormat.RAW)
    assert (store.cache / name).stat().st_ino == inode
    assert (store.cache / name).read_bytes() == (
        Catalogue(tmp_path / "images").local_file(image).read_bytes()
    )
    handler(store, tmp_path).init()
    assert (store.unfinished(), store.find(name)) == ([], template)


def test_a_removal_that_was_begun_is_finished(place, store, image, tmp_path):
    kill_at("remove", "file", StepMoment.BEGIN, store, image, tmp_path)
    fill(place)
    handler(store, tmp_path).init()
    assert (os.listdir(store.cache), store.unfinished()) == ([], [])


def test_what_could_not_be_begun_changes_nothing(place, store, image, tmp_path):
    ballast = fill(place)
    with pytest.raises((NoSpace, StateNotWritable)):
        handler(store, tmp_path).fetch_image(image, DiskFormat.RAW)
    handler(store, tmp_path).init()
    assert (os.listdir(store.cache), store.unfinished()) == ([], [])
    ballast.unlink()
    assert handler(store, tmp_path).fetch_image(image, DiskFormat.RAW)


def test_what_nothing_uses_goes_and_makes_space(place, store, image, tmp_path):
    keeper = handler(store, tmp_path)
    keeper.fetch_image(image, DiskFormat.RAW)
    fill(place)
    nothing = Uses(by_template={})
    leases = UsageLeases(store, lambda: "here", timedelta(days=30))
    rules = Rules(removes_unused=True, minimum_age=timedelta(0), max_bytes=0)
    manager = ImageCacheManager(
        store,
        leases,
        Catalogue(tmp_path / "images"),
        find_uses=lambda: nothing,
        find_promised=lambda: nothing,
        remove=keeper.drop,
        cleanup=keeper.init,
    )
    assert len(manager.prune(rules)) == 1
    assert (os.listdir(store.cache), list(store.all()), store.unfinished()) == ([], [], [])
