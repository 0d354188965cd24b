"""What is fetched ahead of need is what a server would be made from."""

import threading
from dataclasses import replace

import pytest

from millpond.disks import precache
from millpond.disks.precache import Wanted
from millpond.disks.selection import Selection
from millpond.errors import ImageNotFound
from millpond.model.boot_images import BootImages
from millpond.model.formats import Backend, DiskFormat, ImageFormat
from millpond.model.image import Image
from millpond.model.names import ImageId
from millpond.model.sizes import MiB


def image(name, format):
    return Image(
        id=ImageId(name),
        name=name,
        format=format,
        size=MiB,
        virtual_size=MiB,
        digest="",
        created="",
    )


def test_a_disk_comes_with_its_kernel_and_its_ramdisk():
    kernel, ramdisk = image("k", ImageFormat.AKI), image("r", ImageFormat.ARI)
    boot = BootImages(kernel=kernel, ramdisk=ramdisk)
    root = image("root", ImageFormat.QCOW2)
    selection = Selection(force_raw_images=False)
    its_kernel = Wanted(image=kernel, format=DiskFormat.RAW)
    assert list(precache.plan(root, boot, selection)) == [
        Wanted(image=root, format=DiskFormat.QCOW2, backend=Backend.QCOW2),
        its_kernel,
        Wanted(image=ramdisk, format=DiskFormat.RAW),
    ]
    without = replace(boot, ramdisk=None)
    assert len(list(precache.plan(root, without, selection))) == 2
    assert list(precache.plan(kernel, None, selection)) == [its_kernel]


class Handler:
    """Counts how many are fetched at once, and has no image named 'missing'."""

    def __init__(self):
        self.fetched, self.most, self._now = [], 0, 0
        self._lock, self._both = threading.Lock(), threading.Barrier(2)

    def fetch_image(self, image, format, progress):
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        self._both.wait(10)
        with self._lock:
            self._now -= 1
            self.fetched.append(image.name)
        if image.name == "missing":
            raise ImageNotFound(image.name)
        return image.name


def test_some_are_fetched_at_a_time_and_one_that_fails_keeps_none_of_the_others():
    handler = Handler()
    names = ("missing", *"abc")
    wanted = [Wanted(image=image(name, ImageFormat.RAW), format=DiskFormat.RAW) for name in names]
    with pytest.raises(ImageNotFound):
        precache.fetch(handler, {}, wanted, 2)
    assert sorted(handler.fetched) == ["a", "b", "c", "missing"]
    assert handler.most == 2
