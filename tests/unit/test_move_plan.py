"""Whether a server can move to a host, and how its disks would travel: nothing is changed."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from millpond.doctor import moves
from millpond.errors import ImageNotFound, UnfitHost, Unsupported
from millpond.hosts.deployment import Deployment
from millpond.libvirt.pools import PoolPlan, PoolWanted
from millpond.libvirt.virtualization import Limits
from millpond.model.devices import Devices
from millpond.model.formats import Backend, DiskFormat
from millpond.model.layer import NbdSource
from millpond.model.move import Way
from millpond.model.server import Content, Disk, Firmware, Server
from millpond.model.sizes import GiB, MiB
from millpond.model.template import Link, Template
from millpond.model.volume import VolumeSpec
from millpond.scheduling.providers import HostProviders
from millpond.servers.move_plan import plan_move, refuse_unmovable
from millpond.xml.domain import DiskXml
from tests.support.memory_host import IMAGE, World
from tests.unit.test_migrate import Hosts

PLAN = PoolPlan(
    base=PoolWanted(name="base", path="/base"), disks=PoolWanted(name="disks", path="/disks")
)

SCHEDULER = SimpleNamespace(filter_hosts_by_image_type_support=False)


class Store:
    """Templates by their names."""

    def __init__(self, *templates: Template) -> None:
        self.templates = {each.volume: each for each in templates}

    def find(self, name: str) -> Template | None:
        return self.templates.get(name)


class Ends(Hosts):
    """With what a plan asks of hosts besides."""

    def __init__(self, state, *, uefi=False) -> None:
        super().__init__(state, runs=False, uefi=uefi)
        for world in self.worlds.values():
            vars(world.host).update(pool_plan=PLAN)
            self.offer(world, Store())
        deployment = self.alder.host.shared
        assert isinstance(deployment, Deployment)
        deployment.__dict__["images"] = SimpleNamespace(describe=self._describe)
        self.is_gone = False

    def offer(self, world: World, store: Store) -> None:
        vars(world.host).update(template_store=store, find_template_store=lambda: store)

    def _describe(self, id: str) -> object:
        if self.is_gone:
            raise ImageNotFound(id)
        return IMAGE

    def with_overlay(self, content: Content = Content.IMAGE) -> Server:
        """Its root disk backed by its template, and something written to it."""
        server = self.record
        (disk,) = server.disks
        self.alder.pool.delete(disk.volume)
        spec = VolumeSpec(name=disk.volume, format=DiskFormat.QCOW2, capacity=disk.size)
        self.alder.pool.create(spec)
        self.alder.pool.upload(disk.volume, b"x" * 4096)
        changed = replace(
            disk, backend=Backend.QCOW2, format=DiskFormat.QCOW2, overlay=True, content=content
        )
        return replace(server, disks=(changed,))

    def template(self, disk: Disk, **changes: object) -> Template:
        assert disk.template
        made = self.alder._fetch(IMAGE, disk.template.format, None)
        return replace(made, volume=disk.template.volume, **changes)  # type: ignore[arg-type]

    def plan(self, server: Server, shared: tuple[str, ...] = ()):
        return plan_move(self.alder.host, self.birch.host, server, shared, starts=False)


@pytest.fixture
def ends(room):
    return Ends(room)


def test_a_disk_that_stands_alone_is_copied(ends):
    found = ends.plan(ends.record)
    (travel,) = found.travels
    assert (travel.way, travel.template, found.server.host) == (Way.COPY, "", "birch")
    assert found.size == travel.size == ends.alder.pool.volumes()[0].allocation
    assert found.details.here == found.details.there == ends.record.disks
    assert ends.birch.pool.names() == []


def test_an_overlay_travels_alone_where_the_same_template_is_or_can_be(ends):
    server = ends.with_overlay()
    (disk,) = server.disks
    ends.offer(ends.alder, Store(ends.template(disk)))
    prepared = ends.plan(server)
    assert (prepared.travels[0].way, prepared.is_cached) == (Way.COPY, False)
    assert prepared.travels[0].template_size == IMAGE.size
    ends.offer(ends.birch, Store(ends.template(disk, created="at another time")))
    cached = ends.plan(server)
    assert (cached.travels[0].way, cached.is_cached, cached.size) == (Way.COPY, True, 4096)
    assert cached.server.disks[0].overlay


@pytest.mark.parametrize("why", ["image gone", "another content", "formatted there"])
def test_an_overlay_on_something_else_travels_whole_and_stands_alone(ends, why):
    blank = why == "formatted there"
    server = ends.with_overlay(Content.EPHEMERAL if blank else Content.IMAGE)
    (disk,) = server.disks
    own = {"image": "", "image_digest": ""} if blank else {}
    ends.offer(ends.alder, Store(ends.template(disk, **own)))
    ends.is_gone = why == "image gone"
    if why != "image gone":
        other = {**own, "created": "later", **({} if blank else {"image_digest": "another"})}
        ends.offer(ends.birch, Store(ends.template(disk, **other)))
    found = ends.plan(server)
    assert found.travels[0].way is Way.WHOLE
    (there,) = found.details.there
    assert (there.overlay, there.template) == (False, None)
    assert found.size >= 4096
    ends.birch.pool.create(VolumeSpec(name=disk.volume, format=DiskFormat.RAW, capacity=MiB))
    shared = ends.plan(server, ("disks",))
    assert shared.travels[0].way is Way.WHOLE
    assert shared.details.there[0].volume == f"{disk.volume}.rebuilt"


def test_what_is_still_arriving_is_read_for_a_host_that_cannot_have_it(ends):
    """A host that can have the image gets the overlay alone."""
    server = ends.with_overlay()
    stream = Link(location="https://images/debian", nbd=NbdSource(socket=Path("/stream")))
    ends.offer(ends.alder, Store(ends.template(server.disks[0], link=stream)))
    assert ends.plan(server).travels[0].way is Way.COPY
    ends.is_gone = True
    plan = ends.plan(server)
    assert (plan.travels[0].way, plan.details.there[0].overlay) == (Way.WHOLE, False)


def test_in_a_shared_pool_nothing_travels_if_the_host_sees_it(ends):
    with pytest.raises(UnfitHost, match=r"has no volume .* and was shared"):
        ends.plan(ends.record, ("disks",))
    volume = ends.record.disks[0].volume
    ends.birch.pool.create(VolumeSpec(name=volume, format=DiskFormat.RAW, capacity=MiB))
    found = ends.plan(ends.record, ("disks",))
    assert (found.travels[0].way, found.size) == (Way.SHARED, 0)
    with pytest.raises(UnfitHost, match=f"has volume {volume} already"):
        ends.plan(ends.record)


def variables_of(ends, *shared):
    """How they would travel."""
    plan = ends.plan(ends.record, shared)
    return next(each for each in plan.travels if each.role == "nvram")


def test_the_variables_of_uefi_travel_as_any_volume(room):
    ends = Ends(room, uefi=True)
    refuse_unmovable(ends.alder.host, ends.record)
    found = variables_of(ends)
    volume = ends.record.get_disk("nvram").volume
    assert (found.way, found.size) == (Way.COPY, ends.alder.pool.get(volume).allocation)
    ends.birch.pool.add_file(volume)
    with pytest.raises(UnfitHost, match=f"has volume {volume} already"):
        ends.plan(ends.record)


def test_variables_that_are_not_made_yet_do_not_travel(room):
    ends = Ends(room, uefi=True)
    disk, variables = ends.record.disks
    ends.alder.pool.remove_file(variables.volume)
    assert variables_of(ends).way is Way.NEW
    ends.birch.pool.create(VolumeSpec(name=disk.volume, format=DiskFormat.RAW, capacity=MiB))
    assert variables_of(ends, "disks").way is Way.NEW
    ends.birch.pool.add_file(variables.volume)  # a leftover, which libvirt would take
    with pytest.raises(UnfitHost, match=f"has volume {variables.volume} already"):
        ends.plan(ends.record, ("disks",))


def test_a_host_without_what_it_needs_is_unfit_and_says_why(ends):
    server, host = ends.record, ends.birch.host

    def unfit(changed: Server = server) -> str:
        with pytest.raises(UnfitHost) as found:
            ends.plan(changed)
        assert found.value.advice
        return str(found.value)

    (disk,) = server.disks
    for backend in (Backend.LVM, Backend.RBD):
        elsewhere = replace(server, disks=(replace(disk, backend=backend),))
        assert f"no pool for {backend} disks" in unfit(elsewhere)
    ends.birch.pool.create(VolumeSpec(name="full", format=DiskFormat.RAW, capacity=GiB))
    ends.birch.pool.upload("full", bytes(GiB - MiB + 1))
    assert "pool disks of host 'birch' lacks 1 B of the 1 MiB that are needed" in unfit()
    ends.birch.pool.delete("full")
    vars(host)["limits"] = lambda _hardware: Limits(vcpus=None, memory=GiB)
    assert "does not know machine type" in unfit()
    vars(host)["limits"] = lambda _hardware: Limits(vcpus=255, memory=GiB)
    ends.birch.domains.defined["another"] = ends.alder.domains.defined[server.id]
    assert "somebody else's domain 'web'" in unfit()
    ends.birch.domains.defined = dict(ends.alder.domains.defined)
    assert "a domain of this server already" in unfit()


def test_what_no_host_can_help_is_refused(ends):
    server, host = ends.record, ends.alder.host

    def refused(changed: Server = server) -> str:
        with pytest.raises(Unsupported) as found:
            refuse_unmovable(host, changed)
        return str(found.value)

    refuse_unmovable(host, server)
    uefi = replace(server, hardware=replace(server.hardware, firmware=Firmware.UEFI))
    assert "its UEFI variables are in a file of its host" in refused(uefi)
    assert "the state of its TPM" in refused(replace(server, devices=Devices(tpm=True)))
    legacy = replace(server.disks[0], path="/var/lib/nova/instances/x/disk")
    assert "legacy layout" in refused(replace(server, disks=(legacy,)))
    domains = ends.alder.domains
    known = domains.defined[server.id]
    extra = DiskXml(type="file", device="disk", target="vdz", bus="virtio")
    domains.defined[server.id] = replace(known, disks=(*known.disks, extra))
    assert "does not know: vdz" in refused()


def test_the_doctor_tells_of_what_a_move_left_on_a_host(ends):
    server, deployment = ends.record, ends.alder.host.shared
    (disk,) = server.disks
    apart = {
        name: HostProviders(host=name, pools={"disks": f"{name}:disks"}) for name in ends.worlds
    }
    together = {name: replace(each, pools={"disks": "shared"}) for name, each in apart.items()}

    def told(providers=apart) -> list[str]:
        reporter = SimpleNamespace(providers=lambda: providers)
        deployment.__dict__["scheduler"] = SimpleNamespace(reporter=reporter)
        return [each.what for each in moves.unknown(ends.birch.host)]

    deployment.settings = SimpleNamespace(hosts=ends.worlds, scheduler=SCHEDULER, placement=None)
    for world in ends.worlds.values():
        world.pools.open = world.pools.ensure
    assert told() == []
    ends.birch.pool.create(VolumeSpec(name=disk.volume, format=DiskFormat.RAW, capacity=MiB))
    (said,) = told()
    assert disk.volume in said
    assert "'web' on host alder" in said
    assert told(together) == told({}) == []
    assert list(moves.unknown(ends.alder.host)) == []
