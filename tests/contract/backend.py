"""What every backend promises, on the real thing.

Each backend runs this suite with its own ``configured``: a Millpond whose images_type it is, and
the micro guest in its catalogue as ``guest``.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from lxml import etree

from millpond.disks.backend import DiskRequest, ImageBackend, ImageFile, SupportsSnapshots
from millpond.errors import DiskTooSmall, MillpondError, Unsupported
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.model.formats import Backend, DiskFormat
from millpond.model.layer import FileSource, RbdSource, VolumeSource
from millpond.model.names import ServerId
from millpond.model.server import Content, Disk, Flavor, TemplateRef
from millpond.model.sizes import MiB
from millpond.model.template import Template
from millpond.records.journal import StepMoment
from millpond.servers import create, delete, grow, power
from millpond.servers.create import ServerRequest
from tests.support.guest_ticks import chains, wait_for_ticks
from tests.support.guests import MicroGuest
from tests.support.millpond import Millpond, converted

SERVER = ServerId("0b8f1c2d-3e4f-4a5b-8c6d-7e8f9a0b1c2d")
SECONDS = 90


@dataclass(frozen=True)
class Bench:
    """A backend, with the host that it belongs to and what its disks are made from."""

    millpond: Millpond
    host: Host
    backend: ImageBackend
    guest: MicroGuest

    @property
    def template(self) -> Template:
        image = self.host.shared.catalogue.get("guest")
        choice = self.host.settings.libvirt.selection.choose(image.format)
        return self.host.handlers.chosen.fetch_image(image, choice.template_format)

    def planned(self, size: int, *, blank: bool = False) -> Disk:
        template = None if blank else self.template
        reference = template and TemplateRef(
            pool=template.pool, volume=template.volume, format=template.format
        )
        content = Content.DATA if blank else Content.IMAGE
        request = DiskRequest(server=SERVER, role="disk", content=content, size=size, target="vda")
        return self.backend.plan(request, reference)

    def made(self, size: int, *, blank: bool = False) -> Disk:
        planned = self.planned(size, blank=blank)
        return self.backend.create(planned, None if blank else self.template)

    def content(self, disk: Disk) -> bytes:
        """What a guest would read."""
        path = self.millpond.directory / "extracted"
        path.unlink(missing_ok=True)
        if isinstance(self.backend, SupportsSnapshots):
            self.backend.freeze(disk)
        self.backend.extract(disk, ImageFile(path=path, format=DiskFormat.RAW))
        if isinstance(self.backend, SupportsSnapshots):
            self.backend.thaw(disk)
        return path.read_bytes()

    def volumes(self) -> set[str]:
        """Of servers, in every pool of the configuration."""
        names = self.host.pool_plan.all()
        pools = [self.host.pools.ensure(name) for name in names]
        for pool in pools:
            pool.refresh()
        return {each.name for pool in pools for each in pool.volumes() if "-" in each.name}


def padded(content: bytes, size: int) -> bytes:
    return content + bytes(size - len(content))


class BackendContract:
    backend: Backend
    grows_while_running = True

    @pytest.fixture
    def configured(self) -> Millpond:
        raise AssertionError("the backend's own tests configure it")

    @pytest.fixture
    def bench(self, configured, micro_guest) -> Bench:
        host = configured.host()
        found = host.storage(self.backend)
        return Bench(configured, host, found, micro_guest)

    def test_a_disk_holds_what_its_template_holds_and_zeros(self, bench):
        disk = bench.made(8 * MiB)
        assert bench.backend.exists(disk)
        assert disk.size == 8 * MiB
        assert bench.content(disk) == padded(bench.guest.path.read_bytes(), 8 * MiB)

    def test_an_empty_disk_reads_as_zeros(self, bench):
        disk = bench.made(8 * MiB, blank=True)
        assert bench.content(disk) == bytes(8 * MiB)

    def test_a_disk_is_made_from_a_file_with_zeros_behind_it(self, bench):
        """Of another format, and shorter than the disk; the file is not needed afterwards."""
        path = converted(bench.guest, "qcow2", bench.millpond.directory)
        planned = bench.planned(8 * MiB, blank=True)
        image = ImageFile(path=path, format=DiskFormat.QCOW2)
        for _ in range(2):  # it may be done again
            disk = bench.backend.create_from_file(planned, image)
        path.unlink()
        assert disk.size == 8 * MiB
        assert bench.content(disk) == padded(bench.guest.path.read_bytes(), 8 * MiB)
        assert bench.volumes() == {disk.volume}

    def test_a_plan_makes_nothing(self, bench):
        assert not bench.backend.exists(bench.planned(8 * MiB))
        assert bench.volumes() == set()

    def test_making_it_twice_is_making_it_once(self, bench):
        first, second = bench.made(8 * MiB), bench.made(8 * MiB)
        assert first == second
        assert len(bench.volumes()) == 1

    def test_a_disk_smaller_than_its_template_is_refused_and_nothing_made(self, bench):
        with pytest.raises(DiskTooSmall):
            bench.made(MiB // 2)
        assert bench.volumes() == set()

    def test_a_disk_grows_and_keeps_its_content(self, bench):
        disk = bench.made(8 * MiB)
        before = bench.content(disk)
        strategy = bench.backend.grow_strategy(disk)
        strategy.begin(16 * MiB)
        assert strategy.finish(16 * MiB) == 16 * MiB
        assert bench.content(replace(disk, size=16 * MiB)) == padded(before, 16 * MiB)
        assert len(bench.volumes()) == 1

    def test_deleting_it_twice_is_deleting_it_once(self, bench):
        disk = bench.made(8 * MiB)
        bench.backend.delete(disk)
        bench.backend.delete(disk)
        assert not bench.backend.exists(disk)
        assert bench.volumes() == set()

    def test_the_chain_is_what_the_record_says(self, bench):
        disk = bench.made(8 * MiB)
        top, *below = bench.backend.chain(disk)
        assert top.format is disk.format
        match top.source:
            case VolumeSource(pool=pool, volume=volume):
                assert (pool, volume) == (disk.pool, disk.volume)
            case RbdSource(image=image):
                assert image == disk.volume
            case FileSource():
                raise AssertionError("a volume of a pool has a name, not a path")
        assert [each.format for each in below] == (
            [disk.template.format] if disk.overlay and disk.template else []
        )

    def server(self, bench, **flavor: int):
        host = bench.host
        request = ServerRequest(
            name="web",
            image=host.shared.catalogue.get("guest"),
            flavor=Flavor(memory=32 * MiB, **flavor),
        )
        return create.create(host, request)

    def test_a_guest_boots_and_finds_its_bytes_again(self, bench, connection):
        made = self.server(bench, disk=8 * MiB)
        assert bench.guest.marker in bench.millpond.wait_for_console(made.id, "READY", SECONDS)
        power.reboot(bench.host, made, patience=0)
        bench.millpond.wait_for_console(made.id, "BOOTS 0002", SECONDS)
        self.xml_equals_the_record(bench, connection, made)
        delete.delete(bench.host, made)
        assert bench.volumes() == set()

    def xml_equals_the_record(self, bench, connection, server) -> None:
        """Formats and chains are stated to their end: nothing is probed."""
        xml = etree.fromstring(connection.lookupByUUIDString(server.id).XMLDesc())
        found = xml.find("devices/disk")
        (disk,) = bench.host.shared.server(server.id).disks
        assert found.find("driver").get("type") == disk.format
        if disk.format.libvirt_makes:
            assert bench.host.pools.ensure(disk.pool).get(disk.volume).capacity == disk.size
        layer = found.find("backingStore")
        if disk.overlay:
            assert layer.find("format").get("type") == disk.template.format
            assert layer.find("source").get("volume") == disk.template.volume
            layer = layer.find("backingStore")
        assert layer is None or len(layer) == 0

    def test_a_snapshot_boots(self, bench):
        made = self.server(bench)
        bench.millpond.wait_for_console(made.id, "READY", SECONDS)
        host = bench.host
        power.stop(host, made, patience=0)
        bench.millpond.ok("server", "snapshot", "web", "copy", "--compress")
        delete.delete(host, made)
        copied = ServerRequest(
            name="copy",
            image=bench.host.shared.catalogue.get("copy"),
            flavor=Flavor(memory=32 * MiB),
        )
        again = create.create(host, copied)
        bench.millpond.wait_for_console(again.id, "BOOTS 0002", SECONDS)

    def test_a_snapshot_of_a_running_server_boots_and_the_server_goes_on(self, bench, connection):
        made = self.server(bench)
        bench.millpond.wait_for_console(made.id, "TICK 0001", SECONDS)
        domain = connection.lookupByName("web")
        before, there = (chains(domain), domain.ID()), bench.volumes()
        bench.millpond.ok("server", "snapshot", "web", "copy")
        assert (chains(domain), domain.ID()) == before
        assert bench.volumes() == there
        wait_for_ticks(bench.millpond, made.id)
        request = ServerRequest(
            name="copy",
            image=bench.host.shared.catalogue.get("copy"),
            flavor=Flavor(memory=32 * MiB),
        )
        again = create.create(bench.host, request)
        bench.millpond.wait_for_console(again.id, "BOOTS 0002", SECONDS)

    @pytest.mark.parametrize("step", ["disks", "domain", "start"])
    def test_a_failure_at_any_step_leaves_nothing(self, bench, connection, step):
        def fail(*where: object) -> None:
            if where == ("create", step, StepMoment.END):
                raise MillpondError

        host = Deployment.load([bench.millpond.config], fail).host()
        failing = Bench(bench.millpond, host, bench.backend, bench.guest)
        with pytest.raises(MillpondError):
            self.server(failing)
        assert bench.volumes() == set()
        assert connection.listAllDomains() == []
        assert host.records.all() == []

    def test_a_running_server_s_disk_grows_or_says_why_not(self, bench, connection):
        made = self.server(bench, disk=8 * MiB)
        bench.millpond.wait_for_console(made.id, "READY", SECONDS)
        if self.grows_while_running:
            grow.grow(bench.host, made, "disk", 16 * MiB)
            assert bench.host.shared.server("web").disks[0].size == 16 * MiB
        else:
            with pytest.raises(Unsupported) as refusal:
                grow.grow(bench.host, made, "disk", 16 * MiB)
            assert "stop" in refusal.value.advice
            assert bench.host.shared.server("web").disks[0].size == 8 * MiB
        with pytest.raises(Unsupported, match="lost"):
            grow.grow(bench.host, made, "disk", MiB)


def configure(millpond: Millpond, guest: Path, *lines: str) -> Millpond:
    """The micro guest in the catalogue of a Millpond with these options."""
    millpond.configure("\n".join(lines))
    millpond.ok("image", "add", guest, "--name", "guest")
    return millpond
