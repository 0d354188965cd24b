"""What every pool promises; each implementation runs this suite with its own ``pool``."""

import threading
from contextlib import suppress

import pytest

from millpond.errors import Unsupported, VolumeExists, VolumeNotFound
from millpond.model.formats import DiskFormat
from millpond.model.sizes import MiB
from millpond.model.volume import Backing, VolumeSpec
from millpond.storage.pool import Pool


def spec(name: str, **changes: object) -> VolumeSpec:
    values: dict[str, object] = {"name": name, "format": DiskFormat.QCOW2, "capacity": MiB}
    return VolumeSpec(**(values | changes))  # type: ignore[arg-type]


class PoolContract:
    @pytest.fixture
    def pool(self) -> Pool:
        raise AssertionError("the implementation's own tests give the pool")

    def test_a_created_volume_is_found(self, pool):
        created = pool.create(spec("a"))
        assert (created.name, created.pool, created.capacity) == ("a", pool.name, MiB)
        assert created.path == f"{pool.path}/a"
        assert pool.find("a") == created == pool.get("a")
        assert list(pool.volumes()) == [created]

    def test_a_missing_volume_is_none_or_an_error(self, pool):
        assert pool.find("a") is None
        with pytest.raises(VolumeNotFound, match="no volume 'a'"):
            pool.get("a")

    @pytest.mark.parametrize("format", [DiskFormat.RAW, DiskFormat.QCOW2])
    def test_a_name_is_used_once(self, pool, format):
        pool.create(spec("a", format=format))
        with pytest.raises(VolumeExists, match="'a' already exists"):
            pool.create(spec("a", format=format))
        with pytest.raises(VolumeExists):
            pool.create_from(spec("a", format=format), pool.get("a"))
        assert len(pool.volumes()) == 1

    def test_an_overlay_names_its_backing(self, pool):
        base = pool.create(spec("base"))
        backing = Backing(path=base.path, format=DiskFormat.QCOW2)
        assert pool.create(spec("top", backing=backing)).backing_path == base.path

    def test_an_empty_volume_takes_no_space(self, pool):
        """B29: left out, <allocation> would mean all of it."""
        assert pool.create(spec("a", format=DiskFormat.RAW, capacity=64 * MiB)).allocation < MiB

    def test_a_copy_stands_alone(self, pool):
        base = pool.create(spec("base"))
        assert pool.create_from(spec("copy"), base).backing_path is None

    @pytest.mark.parametrize("format", [DiskFormat.RAW, DiskFormat.QCOW2])
    def test_a_copy_is_as_large_as_asked_for(self, pool, format):
        """Trap 6: createXMLFrom follows the source."""
        base = pool.create(spec("base", format=format))
        assert pool.create_from(spec("b", format=format, capacity=3 * MiB), base).capacity == (
            3 * MiB
        )

    def test_a_volume_grows_and_never_shrinks(self, pool):
        pool.create(spec("a"))
        pool.resize("a", 2 * MiB)
        assert pool.get("a").capacity == 2 * MiB
        with pytest.raises(Unsupported, match="smaller"):
            pool.resize("a", MiB)
        assert pool.get("a").capacity == 2 * MiB

    def test_content_is_written(self, pool):
        pool.create(spec("a", format=DiskFormat.RAW))
        pool.upload("a", b"x" * 700_000)
        assert pool.get("a").capacity == MiB
        pool.refresh()
        assert pool.get("a").allocation >= 700_000

    def test_a_deleted_volume_is_gone(self, pool):
        pool.create(spec("a"))
        pool.delete("a")
        assert pool.find("a") is None
        with pytest.raises(VolumeNotFound):
            pool.delete("a")

    def test_a_refresh_keeps_what_is_there(self, pool):
        pool.create(spec("a"))
        pool.refresh()
        assert [each.name for each in pool.volumes()] == ["a"]

    def test_usage_adds_up(self, pool):
        usage = pool.usage()
        assert 0 < usage.available <= usage.capacity
        assert usage.allocation <= usage.capacity

    def test_only_one_of_many_makes_a_volume(self, pool):
        made = []

        def make():
            with suppress(VolumeExists):
                made.append(pool.create(spec("a")))

        threads = [threading.Thread(target=make) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert len(made) == 1
