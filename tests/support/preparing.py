"""Templates in a directory, prepared without a libvirtd, by a process that may be killed."""

import os
from pathlib import Path

from millpond.images.catalogue import Catalogue
from millpond.libvirt.memory_pool import MemoryPool
from millpond.model.callbacks import noop
from millpond.model.formats import DiskFormat
from millpond.model.image import Image
from millpond.model.volume import Volume
from millpond.records.journal import StepMoment, Watch
from millpond.templates.downloading import DownloadingTemplateImagehandler
from millpond.templates.handler import HandlerContext
from millpond.templates.publication import Users
from millpond.templates.store import TemplateStore


class DirectoryPool(MemoryPool):
    """Sees the files of a directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__("base")
        directory.mkdir()
        self.path = str(directory)

    def find(self, name: str) -> Volume | None:
        path = Path(self.path, name)
        if not path.exists():
            return None
        size = path.stat().st_size
        return Volume(
            pool=self.name, name=name, path=str(path), capacity=size, allocation=size, length=size
        )


def unused(_name: str) -> tuple[str, ...]:
    return ()


def handler(
    store: TemplateStore, tmp_path: Path, users: Users = unused, watch: Watch = noop
) -> DownloadingTemplateImagehandler:
    images = Catalogue(tmp_path / "images")
    return DownloadingTemplateImagehandler(
        HandlerContext(store=store, images=images, users=users, watch=watch)
    )


def kill_at(
    verb: str, step: str, moment: StepMoment, store: TemplateStore, image: Image, tmp_path: Path
) -> None:
    """In a process of its own, which fetches the image's template and removes it."""

    def watch(*where: object) -> None:
        if where == (verb, step, moment):
            os._exit(9)

    if (child := os.fork()) == 0:
        doomed = handler(store, tmp_path, watch=watch)
        doomed.fetch_image(image, DiskFormat.RAW)
        doomed.remove_image(image.id, DiskFormat.RAW)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
