"""Whether the files of a pool are local, on pools in memory; bytes on their way."""

import os

import pytest

from millpond.errors import HostProblem
from millpond.libvirt.locality import LocalityProbe, can_open, is_locality_probe, probe
from millpond.libvirt.memory_pool import MemoryPool
from millpond.libvirt.pool import PoolType, download
from millpond.model.callbacks import scaled
from millpond.model.formats import DiskFormat
from millpond.model.volume import VolumeSpec


class PoolHere(MemoryPool):
    """Its volumes are files, too, but not all as long as they should be."""

    cut = 0

    def create(self, spec):
        made = super().create(spec)
        with open(made.path, "wb") as file:
            file.truncate(max(0, spec.capacity - self.cut))
        return made

    def delete(self, name):
        super().delete(name)
        os.unlink(f"{self.path}/{name}")


@pytest.fixture
def here(tmp_path):
    pool = PoolHere("here")
    pool.path = str(tmp_path)
    return pool


def test_they_are_here_if_a_marker_is(here, tmp_path):
    assert probe(here)
    assert os.listdir(tmp_path) == here.names() == []


def test_they_are_not_if_it_is_not(tmp_path):
    far = MemoryPool("far")
    far.path = str(tmp_path)  # there is such a directory here
    assert not probe(far)
    assert far.names() == []


def test_another_file_of_the_same_name_is_not_enough(here):
    here.cut = 1
    assert not probe(here)


def test_it_is_tried_once(here):
    kept = LocalityProbe(lambda: here)
    assert kept(here)
    here.create = None
    assert kept(here)


def test_the_base_pool_answers_for_volumes_that_are_no_files(here):
    lvm = MemoryPool("lvm", type_=PoolType.LOGICAL)
    assert LocalityProbe(lambda: here)(lvm)
    assert lvm.names() == []


def test_a_path_that_is_here_by_chance_is_not_opened(tmp_path):
    far = MemoryPool("far")
    far.path = str(tmp_path)
    volume = far.create(VolumeSpec(name="disk", format=DiskFormat.RAW, capacity=1))
    (tmp_path / "disk").write_bytes(b"of another host")
    far.local = probe(far)
    assert not can_open(far, volume, os.R_OK)


def test_only_markers_that_nobody_looks_for_any_more_are_swept(here):
    old, young = (f"millpond-marker-{at}-{'0' * 32}" for at in (1_700_000_000, 99_999_999_999))
    for name in (old, young, "millpond-marker-mine"):
        here.create(VolumeSpec(name=name, format=DiskFormat.RAW, capacity=1))
    assert probe(here)
    assert here.names() == [young, "millpond-marker-mine"]
    assert [is_locality_probe(each) for each in here.names()] == [True, False]


def test_a_download_that_ends_early_is_known(tmp_path):
    pool = MemoryPool("far")
    pool.create(VolumeSpec(name="a", format=DiskFormat.RAW, capacity=100))
    pool.pieces = lambda _name: iter([b"x" * 76])
    with pytest.raises(HostProblem, match="only 76 of 100 bytes came"):
        download(pool, "a", tmp_path / "a")


@pytest.mark.parametrize(("total", "onto"), [(7, 1000), (1000, 7), (3, 3), (10, 0)])
def test_the_legs_of_a_way_add_up_to_all_of_it(total, onto):
    told = []
    tell = scaled(told.append, total, onto)
    for _ in range(total):
        tell(1)
    assert sum(told) == onto


def test_what_lies_in_ceph_is_a_file_nowhere(here):
    rbd = MemoryPool("rbd", type_=PoolType.RBD)
    rbd.path = ""
    asked = []
    assert not LocalityProbe(lambda: asked.append(here))(rbd)
    assert asked == []
