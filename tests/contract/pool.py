"""What every pool promises; each implementation runs this suite with its own ``pool``.

What the capabilities of a pool deny is refused with the reason, and that refusal is the test.
"""

import threading
from contextlib import suppress
from dataclasses import replace

import pytest

from millpond.errors import Unsupported, VolumeExists, VolumeNotFound
from millpond.libvirt.pool import Pool, bytes_of, download, send_file
from millpond.model.formats import DiskFormat
from millpond.model.sizes import MiB
from millpond.model.volume import Backing, VolumeSpec


def spec(name: str, **changes: object) -> VolumeSpec:
    values: dict[str, object] = {"name": name, "format": DiskFormat.RAW, "capacity": MiB}
    return VolumeSpec(**(values | changes))  # type: ignore[arg-type]


def formats(pool: Pool) -> set[DiskFormat]:
    """Those that libvirt itself can make."""
    return pool.capabilities.formats & {DiskFormat.RAW, DiskFormat.QCOW2}


class PoolContract:
    unit = MiB
    """Sizes of new volumes are rounded up to it."""

    @pytest.fixture
    def pool(self) -> Pool:
        raise AssertionError("the implementation's own tests give the pool")

    def test_a_created_volume_is_found(self, pool):
        created = pool.create(spec("a"))
        assert (created.name, created.pool, created.capacity) == ("a", pool.name, self.unit)
        if pool.path:
            assert created.path == f"{pool.path}/a"
        assert pool.find("a") == created == pool.get("a")
        assert list(pool.volumes()) == [created]

    def test_a_missing_volume_is_none_or_an_error(self, pool):
        assert pool.find("a") is None
        with pytest.raises(VolumeNotFound, match="no volume 'a'"):
            pool.get("a")

    def test_a_name_is_used_once(self, pool):
        for format in formats(pool):
            wanted = spec(format.value, format=format)
            pool.create(wanted)
            with pytest.raises(VolumeExists, match=f"'{format}' already exists"):
                pool.create(wanted)
            with pytest.raises(VolumeExists):
                pool.create_from(wanted, pool.get(wanted.name))
        assert len(pool.volumes()) == len(formats(pool))

    def test_an_overlay_names_its_backing_or_is_refused(self, pool):
        base = pool.create(spec("base"))
        wanted = spec("top", backing=Backing(path=base.path, format=DiskFormat.RAW))
        if pool.capabilities.overlays:
            top = replace(wanted, format=DiskFormat.QCOW2)
            assert pool.create(top).backing_path == base.path
        else:
            with pytest.raises(Unsupported, match=f"an overlay .* pool {pool.name} has none"):
                pool.create(wanted)
            assert pool.find("top") is None

    def test_a_format_that_the_pool_does_not_keep_is_refused(self, pool):
        for format in set(DiskFormat) - pool.capabilities.formats:
            for make in (pool.create, lambda wanted: pool.create_from(wanted, pool.get("base"))):
                pool.find("base") or pool.create(spec("base"))
                with pytest.raises(Unsupported, match=f"a {format} volume"):
                    make(spec("a", format=format))
        assert pool.find("a") is None

    def test_an_empty_volume_takes_no_space_where_it_can(self, pool):
        """B29: left out, <allocation> would mean all of it."""
        taken = pool.create(spec("a", capacity=64 * MiB)).allocation
        if not pool.capabilities.remote:  # there libvirt counts what it may take
            assert taken < MiB if pool.capabilities.sparse else taken == 64 * MiB

    def test_a_copy_stands_alone(self, pool):
        base = pool.create(spec("base"))
        assert pool.create_from(spec("copy"), base).backing_path is None

    def test_a_copy_holds_what_its_source_holds(self, pool):
        base = pool.create(spec("base"))
        if not pool.capabilities.uploads:
            return
        pool.upload("base", b"all of it" * 99)
        pool.create_from(spec("copy", capacity=2 * self.unit), pool.get("base"))
        pool.delete("base")
        held = b"".join(bytes_of(pool, "copy"))
        assert held == (b"all of it" * 99).ljust(len(held), b"\0")
        assert len(held) >= base.capacity

    def test_a_copy_is_as_large_as_asked_for(self, pool):
        """trap 6: createXMLFrom follows the source."""
        for format in formats(pool):
            base = pool.create(spec(f"{format}-base", format=format))
            wanted = spec(format.value, format=format, capacity=8 * MiB)
            assert pool.create_from(wanted, base).capacity == 8 * MiB

    def test_a_copy_from_elsewhere_is_refused_where_it_would_be_of_something_else(self, pool):
        """trap 12: an RBD pool takes its own image of that name."""
        source = replace(pool.create(spec("base")), pool="elsewhere")
        if not pool.capabilities.copies_across_pools:
            with pytest.raises(Unsupported, match="copies only its own volumes"):
                pool.create_from(spec("a"), source)
            assert pool.find("a") is None

    def test_a_volume_grows_and_never_shrinks(self, pool):
        pool.create(spec("a"))
        if not pool.capabilities.grows:
            with pytest.raises(Unsupported, match="growing volume a"):
                pool.resize("a", 8 * MiB)
            return
        pool.resize("a", 8 * MiB)
        assert pool.get("a").capacity == 8 * MiB
        with pytest.raises(Unsupported, match="smaller"):
            pool.resize("a", MiB)
        assert pool.get("a").capacity == 8 * MiB

    def test_content_is_written_or_refused(self, pool):
        pool.create(spec("a"))
        if not pool.capabilities.uploads:
            with pytest.raises(Unsupported, match="takes no uploads"):
                pool.upload("a", b"x")
            return
        pool.upload("a", b"x" * 700_000)
        assert pool.get("a").capacity == self.unit
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

    def test_a_file_is_carried_there_and_back_with_its_holes(self, pool, tmp_path):
        source, target, told = tmp_path / "source", tmp_path / "target", []
        with source.open("wb") as file:
            file.write(b"begins")
            file.seek(self.unit // 2)
            file.write(b"in the middle" * 9)
            file.truncate(self.unit)
        pool.create(spec("a", capacity=self.unit))
        if not pool.capabilities.uploads:
            with pytest.raises(Unsupported):
                send_file(pool, "a", source)
            return
        send_file(pool, "a", source, told.append)
        download(pool, "a", target)
        assert target.read_bytes() == source.read_bytes() == b"".join(bytes_of(pool, "a"))
        assert sum(told) == self.unit

    def test_what_is_not_there_is_not_read(self, pool):
        if pool.capabilities.uploads:
            with pytest.raises(VolumeNotFound):
                list(pool.pieces("a"))

    def test_names_are_told_without_looking_at_the_volumes(self, pool):
        assert list(pool.names()) == []
        for name in ("b", "a"):
            pool.create(spec(name))
        assert list(pool.names()) == ["a", "b"]
