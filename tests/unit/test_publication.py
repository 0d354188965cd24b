"""What enters the base pool, and what a crash leaves there: ours alone is ever touched."""

from pathlib import Path

import pytest

from millpond.errors import TemplateInUse, VolumeExists
from millpond.images.catalogue import Catalogue
from millpond.images.intake import Intake
from millpond.libvirt.memory_pool import MemoryPool
from millpond.model.callbacks import noop
from millpond.model.formats import DiskFormat
from millpond.model.image import Image
from millpond.model.names import template_name
from millpond.model.template import Prepared
from millpond.model.volume import Volume, VolumeSpec
from millpond.records.journal import StepMoment
from millpond.templates.publication import Publication
from millpond.templates.remote import RemoteTemplates
from millpond.templates.store import LocalTemplates, TemplateStore
from tests.support.image_files import raw_file
from tests.support.preparing import DirectoryPool, handler, kill_at, unused

PREPARATION = ["receive", "convert", "publish", "refresh", "record"]
REMOVAL = ["record", "file", "refresh"]
MOMENTS = [
    *(("prepare", step, moment) for step in PREPARATION for moment in StepMoment),
    *(("remove", step, moment) for step in REMOVAL for moment in StepMoment),
]
FOREIGN = b"somebody else's base"


class Cut(MemoryPool):
    """The connection breaks off when so many bytes were sent, and stays so until it is mended."""

    broken = False
    after: int | None = None

    def create(self, spec: VolumeSpec) -> Volume:
        self._answer()
        made = super().create(spec)
        if self.after == 0:
            self._break()
        return made

    def upload(self, name: str, content: bytes) -> None:
        self._answer()
        if self.after is None:
            super().upload(name, content)
            return
        super().upload(name, content[: self.after])
        self._break()

    def delete(self, name: str) -> None:
        self._answer()
        super().delete(name)

    def find(self, name: str) -> Volume | None:
        self._answer()
        return super().find(name)

    def _break(self) -> None:
        self.broken = True
        self._answer()

    def _answer(self) -> None:
        if self.broken:
            raise ConnectionError


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return Intake(tmp_path / "images").add(raw_file(tmp_path), name="guest")


@pytest.fixture
def store(tmp_path: Path) -> TemplateStore:
    return LocalTemplates(DirectoryPool(tmp_path / "_base"))


@pytest.fixture
def path(store: TemplateStore, image: Image) -> Path:
    """Of the template."""
    return store.cache / template_name(image.id, DiskFormat.RAW)


def put_foreign(path: Path) -> None:
    """As Nova's own driver does."""
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(FOREIGN)
    part.rename(path)


@pytest.mark.parametrize(("verb", "step", "moment"), MOMENTS)
def test_a_file_that_came_after_a_kill_stays(
    store: TemplateStore,
    image: Image,
    path: Path,
    tmp_path: Path,
    verb: str,
    step: str,
    moment: StepMoment,
) -> None:
    kill_at(verb, step, moment, store, image, tmp_path)
    has_record = store.has_record(path.name)
    put_foreign(path)
    inode = path.stat().st_ino
    handler(store, tmp_path).init()
    assert (path.read_bytes(), path.stat().st_ino) == (FOREIGN, inode)
    assert store.unfinished() == []
    if not has_record:  # else it is a template of ours that somebody has damaged
        with pytest.raises(VolumeExists):
            handler(store, tmp_path).fetch_image(image, DiskFormat.RAW)
        assert (path.read_bytes(), path.stat().st_ino) == (FOREIGN, inode)


@pytest.mark.parametrize(("verb", "step", "moment"), MOMENTS)
def test_a_later_fetch_leaves_it_alone_too(
    store: TemplateStore,
    image: Image,
    path: Path,
    tmp_path: Path,
    verb: str,
    step: str,
    moment: StepMoment,
) -> None:
    kill_at(verb, step, moment, store, image, tmp_path)
    if store.has_record(path.name):
        return
    put_foreign(path)
    with pytest.raises(VolumeExists):
        handler(store, tmp_path).fetch_image(image, DiskFormat.RAW)
    assert path.read_bytes() == FOREIGN


@pytest.mark.parametrize(("verb", "step", "moment"), MOMENTS)
@pytest.mark.parametrize("tidied", [True, False], ids=["tidied", "fetched"])
def test_what_was_killed_is_finished_or_gone_and_can_be_fetched(
    store: TemplateStore,
    image: Image,
    path: Path,
    tmp_path: Path,
    verb: str,
    step: str,
    moment: StepMoment,
    tidied: bool,
) -> None:
    kill_at(verb, step, moment, store, image, tmp_path)
    stays = path.exists() and (verb == "prepare" or step == "record")
    inode = path.stat().st_ino if stays else None
    if tidied:
        handler(store, tmp_path).init()
        assert store.unfinished() == []
        assert path.exists() == (store.find(path.name) is not None)
    handler(store, tmp_path).fetch_image(image, DiskFormat.RAW)
    assert path.read_bytes() == Catalogue(tmp_path / "images").local_file(image).read_bytes()
    assert inode in (None, path.stat().st_ino)
    handler(store, tmp_path).init()
    assert (store.unfinished(), path.exists()) == ([], True)


def test_a_file_that_came_meanwhile_is_not_taken_away(
    store: TemplateStore, image: Image, path: Path, tmp_path: Path
) -> None:
    def watch(_verb: str, step: str, moment: StepMoment) -> None:
        if (step, moment) == ("publish", StepMoment.BEGIN):
            put_foreign(path)

    with pytest.raises(VolumeExists):
        handler(store, tmp_path, watch=watch).fetch_image(image, DiskFormat.RAW)
    assert path.read_bytes() == FOREIGN
    assert store.unfinished() == []


@pytest.mark.parametrize("users", [(), ("web",)], ids=["unused", "used"])
def test_what_is_published_and_fails_goes_unless_it_is_used(
    store: TemplateStore, image: Image, path: Path, tmp_path: Path, users: tuple[str, ...]
) -> None:
    def watch(_verb: str, step: str, moment: StepMoment) -> None:
        if (step, moment) == ("refresh", StepMoment.END):
            raise OSError("the disk is broken")

    with pytest.raises(OSError, match="broken"):
        handler(store, tmp_path, lambda _name: users, watch).fetch_image(image, DiskFormat.RAW)
    assert path.exists() == bool(users)
    assert store.unfinished() == ([path.name] if users else [])
    handler(store, tmp_path, lambda _name: users).init()
    assert store.unfinished() == []
    assert path.exists() == bool(users) == (store.find(path.name) is not None)


def test_a_preparation_before_its_proof_proves_nothing(store: TemplateStore, path: Path) -> None:
    """What earlier versions left, and what was damaged since."""
    for note in (None, b"", b'{"schema": 1}'):
        store.workspace(path.name)
        if note is not None:
            store.write(store.incoming(path.name) / "passage.json", note)
        put_foreign(path)
        Publication(store, unused, noop).cleanup(path.name)
        assert path.read_bytes() == FOREIGN


# On hosts whose files cannot be opened


@pytest.fixture
def pool() -> Cut:
    return Cut("base")


@pytest.fixture
def remote(pool: Cut, tmp_path: Path) -> TemplateStore:
    return RemoteTemplates(pool, MemoryPool("records"), tmp_path / "sidecar")


def cut_off(remote: TemplateStore, pool: Cut, image: Image, tmp_path: Path, after: int) -> str:
    pool.after = after
    with pytest.raises(ConnectionError):
        handler(remote, tmp_path).fetch_image(image, DiskFormat.RAW)
    pool.after, pool.broken = None, False
    name = template_name(image.id, DiskFormat.RAW)
    assert remote.unfinished() == [name]
    return name


@pytest.mark.parametrize("after", [0, 1000, 1 << 30], ids=["empty", "part", "all"])
def test_a_part_of_ours_goes_and_so_does_no_other(
    remote: TemplateStore, pool: Cut, image: Image, tmp_path: Path, after: int
) -> None:
    name = cut_off(remote, pool, image, tmp_path, after)
    handler(remote, tmp_path).init()
    assert (pool.names(), remote.unfinished()) == ([], [])
    cut_off(remote, pool, image, tmp_path, after)
    pool.delete(name)
    pool.create(VolumeSpec(name=name, format=DiskFormat.RAW, capacity=image.size))
    pool.upload(name, FOREIGN)
    handler(remote, tmp_path).init()
    assert next(pool.pieces(name)).startswith(FOREIGN)  # type: ignore[union-attr]
    assert remote.unfinished() == []
    with pytest.raises(VolumeExists):
        handler(remote, tmp_path).fetch_image(image, DiskFormat.RAW)
    assert next(pool.pieces(name)).startswith(FOREIGN)  # type: ignore[union-attr]


@pytest.mark.parametrize("after", [0, 1000, 1 << 30], ids=["empty", "part", "all"])
def test_a_part_that_somebody_waits_for_is_filled(
    remote: TemplateStore, pool: Cut, image: Image, tmp_path: Path, after: int
) -> None:
    name = cut_off(remote, pool, image, tmp_path, after)

    def users(_name: str) -> tuple[str, ...]:
        return ("web",)

    handler(remote, tmp_path, users).init()
    assert (pool.names(), remote.unfinished()) == ([name], [name])
    template = handler(remote, tmp_path, users).fetch_image(image, DiskFormat.RAW)
    assert (template.prepared, remote.unfinished()) == (Prepared.UPLOAD, [])
    assert next(pool.pieces(name)) == Catalogue(tmp_path / "images").local_file(image).read_bytes()


@pytest.mark.parametrize("users", [(), ("web",)], ids=["unused", "used"])
def test_one_that_was_being_removed_goes_unless_it_is_used_by_then(
    remote: TemplateStore, pool: Cut, image: Image, tmp_path: Path, users: tuple[str, ...]
) -> None:
    template = handler(remote, tmp_path).fetch_image(image, DiskFormat.RAW)

    def watch(_verb: str, step: str, moment: StepMoment) -> None:
        if (step, moment) == ("file", StepMoment.BEGIN):
            raise ConnectionError

    with pytest.raises(ConnectionError):
        handler(remote, tmp_path, watch=watch).remove_image(image.id, DiskFormat.RAW)
    assert (remote.find(template.volume), pool.names()) == (None, [template.volume])
    handler(remote, tmp_path, lambda _name: users).init()
    assert remote.find(template.volume) == (template if users else None)
    assert (pool.names(), remote.unfinished()) == ([template.volume] if users else [], [])


def test_what_is_used_is_not_removed(
    store: TemplateStore, image: Image, path: Path, tmp_path: Path
) -> None:
    handler(store, tmp_path).fetch_image(image, DiskFormat.RAW)
    with pytest.raises(TemplateInUse):
        handler(store, tmp_path, lambda _name: ("web",)).remove_image(image.id, DiskFormat.RAW)
    assert path.exists()
