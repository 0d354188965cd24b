"""A template that is prepared and removed, interrupted wherever something is written or a step
begins or ends, and its recovery likewise: whole with its record, or gone; never disowned.

Kills are in test_publication.py: they need a process of their own.
"""

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from millpond.errors import MillpondError
from millpond.images.catalogue import Catalogue
from millpond.images.intake import Intake
from millpond.model.formats import DiskFormat
from millpond.model.image import Image
from millpond.model.names import template_name
from millpond.model.template import Template
from millpond.templates.store import LocalTemplates
from tests.support.image_files import raw_file
from tests.support.memory_host import NONE, Fault, Moments
from tests.support.preparing import DirectoryPool, handler

WRITES, STEPS = frozenset({"write"}), frozenset({"step"})
ANYWHERE = WRITES | STEPS
FAULTS: dict[str, Callable[[int], Fault]] = {
    "one write fails": lambda at: Fault(at=at, kinds=WRITES, error=OSError(errno.EIO, "no")),
    "no space from then on": lambda at: Fault(
        at=at, kinds=WRITES, error=OSError(errno.ENOSPC, "full"), lasting=True
    ),
    "Ctrl-C": lambda at: Fault(at=at, kinds=ANYWHERE, error=KeyboardInterrupt()),
    "SIGTERM": lambda at: Fault(at=at, kinds=STEPS, error=SystemExit(143)),
}
FAILURES = (MillpondError, OSError, KeyboardInterrupt, SystemExit)


class Store(LocalTemplates):
    """Each write may fail; an interruption may come when it is done."""

    def __init__(self, path: Path) -> None:
        self.moments = Moments()
        super().__init__(DirectoryPool(path))

    def write(self, path: Path, content: bytes) -> None:
        self._write(lambda: super(Store, self).write(path, content))

    def put(self, template: Template) -> None:
        self._write(lambda: super(Store, self).put(template))

    def forget(self, name: str) -> None:
        self._write(lambda: super(Store, self).forget(name))

    def watch(self, *_where: object) -> None:
        self.moments("step")

    def _write(self, act: Callable[[], None]) -> None:
        self.moments("write")
        act()
        if not isinstance(self.moments.fault.error, Exception):
            self.moments("write")


class Story:
    """One template, and what is done to it."""

    def __init__(self, room: Path, image: Image) -> None:
        room.mkdir()
        self.image = image
        self.store = Store(room / "base")
        self.images = room.parent
        self.name = template_name(image.id, DiskFormat.RAW)
        self.content = Catalogue(self.images / "images").local_file(image).read_bytes()

    def attempt(self, fault: Fault, act: Callable[[], object]) -> bool:
        """Whether the fault came."""
        self.store.moments.begin(fault)
        with suppress(*FAILURES):
            act()
        came = self.store.moments.has_come
        self.store.moments.begin(NONE)
        self.look()
        return came and fault.at > 0

    def fetch(self) -> None:
        self._handler.fetch_image(self.image, DiskFormat.RAW)

    def remove(self) -> None:
        self._handler.remove_image(self.image.id, DiskFormat.RAW)

    def recover(self) -> None:
        self._handler.init()

    def look(self) -> None:
        path = self.store.cache / self.name
        if self.store.find(self.name):
            assert path.read_bytes() == self.content
        elif path.exists():
            assert self.store.unfinished() == [self.name], "nobody knows whose it is"

    @property
    def _handler(self):
        return handler(self.store, self.images, watch=self.store.watch)


@pytest.fixture
def image(room: Path) -> Image:
    return Intake(room / "images").add(raw_file(room), name="guest")


@pytest.mark.parametrize("again", FAULTS)
@pytest.mark.parametrize("first", FAULTS)
@pytest.mark.parametrize("verb", ["fetch", "remove"])
def test_it_is_whole_or_gone_and_can_be_fetched(
    room: Path, image: Image, verb: str, first: str, again: str
) -> None:
    at, came = 1, True
    while came:
        second, more = 1, True
        while more:
            story = Story(room / f"{at}-{second}", image)
            if verb == "remove":
                story.fetch()
            came = story.attempt(FAULTS[first](at), getattr(story, verb))
            more = story.attempt(FAULTS[again](second), story.recover)
            story.recover()
            story.look()
            assert story.store.unfinished() == []
            story.fetch()
            assert story.store.find(story.name)
            story.look()
            second += 1
        at += 1
    assert at > 2
