"""A whole small cloud: Keystone, Placement, Glance, Neutron and Nova with one host."""

import contextlib
import functools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from openstack.connection import Connection

from tests.support.libvirtd import PrivateLibvirtd
from tests.support.openstack import neutron, nova
from tests.support.openstack.cinder import NFS, Cinder
from tests.support.openstack.glance import FILES, Glance
from tests.support.openstack.keystone import Keystone
from tests.support.openstack.mariadb import MariaDb
from tests.support.openstack.neutron import Neutron
from tests.support.openstack.nfs import NfsExport
from tests.support.openstack.nova import Backbone, NovaApi, NovaCompute, NovaDaemon, Sections
from tests.support.openstack.placement import Placement
from tests.support.openstack.rabbitmq import RabbitMq
from tests.support.openstack.service import Service
from tests.support.running import Running
from tests.support.waiting import wait_for

# Ten seconds by itself; the machine may be busy.
_COMPUTE_SECONDS = 180

_PLACEMENT = "placement"
_GLANCE = "glance"
_KEYSTONE = "keystone"


def loopback_address(host: str) -> str:
    """Of the machine's loopback, another one for each host."""
    return f"127.0.1.{sum(host.encode()) % 250 + 1}"


class Cloud(Running):
    """Everything but nova-compute runs after start(); that one is configured by each test."""

    def __init__(
        self, directory: Path, libvirtd: PrivateLibvirtd, settings: Sections | None = None
    ) -> None:
        """The settings are of Nova's API, conductor and scheduler."""
        databases = (neutron.DATABASE, *nova.DATABASES, _PLACEMENT, _GLANCE, _KEYSTONE)
        self._mariadb = MariaDb(directory / "mariadb", *databases)
        self.keystone = Keystone(directory / "keystone", database=self._mariadb.url(_KEYSTONE))
        self._rabbitmq = RabbitMq(directory / "rabbitmq")
        self._backbone = Backbone(
            keystone=self.keystone, mariadb=self._mariadb, rabbitmq=self._rabbitmq
        )
        self.placement = Placement(
            directory / "placement",
            keystone=self.keystone,
            database=self._mariadb.url(_PLACEMENT),
        )
        self.glance = Glance(
            directory / "glance", keystone=self.keystone, database=self._mariadb.url(_GLANCE)
        )
        self._nfs = NfsExport(directory / "nfs")
        self.cinder = Cinder(
            directory / "cinder",
            nfs=self._nfs,
            default_type=NFS,
            keystone=self.keystone,
            glance=self.glance.url,
        )
        self._libvirtd = libvirtd
        self._neutron = Neutron(
            directory / "neutron",
            keystone=self.keystone,
            mariadb=self._mariadb,
            rabbitmq=self._rabbitmq,
        )
        self._nova = NovaApi(directory / "nova-api", self._backbone, settings or {})
        self._conductor = NovaDaemon(
            directory / "nova-conductor", "nova-conductor", self._nova.conf
        )
        self._scheduler = NovaDaemon(
            directory / "nova-scheduler", "nova-scheduler", self._nova.conf
        )
        self._directory = directory
        self.compute = self.new_compute(libvirtd)
        self._discovered: set[str] = set()
        self._stack = contextlib.ExitStack()

    def start(self) -> None:
        self._stack.enter_context(self._nfs)
        self._nfs.offer_to(self._libvirtd)
        self._start_all(self._mariadb)
        self._start_all(self._rabbitmq, self.keystone)
        self.keystone.enter(
            {
                "placement": self.placement.url,
                "image": self.glance.url,
                "network": self._neutron.url,
                "compute": self._nova.url,
                "block-storage": self.cinder.url,
            }
        )
        self._start_all(self.placement, self.glance, self.cinder, self._neutron, self._nova)
        self._start_all(self._conductor, self._scheduler)

    def new_compute(self, libvirtd: PrivateLibvirtd) -> NovaCompute:
        """On another host, if it is another libvirtd. Who starts it ends it. QEMU listens there
        for guests that move in, so each has an address of its own (loopback_address)."""
        directory = self._directory / f"compute-{libvirtd.name}"
        return NovaCompute(libvirtd, self._backbone, directory, loopback_address(libvirtd.name))

    def offer_volumes(self, libvirtd: PrivateLibvirtd) -> None:
        """Cinder's, to another host than the first."""
        self._nfs.offer_to(libvirtd)

    def close(self) -> None:
        self.compute.kill()
        self._stack.close()

    @functools.cached_property
    def admin(self) -> Connection:
        """One for all: each keeps connections to the services open."""
        return self.keystone.admin()

    def offer_image(
        self, path: Path, disk_format: str, store: str = FILES, container: str = "bare"
    ) -> str:
        """The id of an image that every user may take."""
        image = self.glance.upload(path, disk_format, store, container)
        self.glance.api.update_image(image, visibility="public")
        return str(image.id)

    def offer_flavor(self, **sizes: int) -> str:
        """The same one to whoever asks for the same."""
        found = self.admin.compute.find_flavor(f"{sizes}")
        made = found or self.admin.compute.create_flavor(name=f"{sizes}", ram=64, vcpus=1, **sizes)
        return str(made.id)

    def traits(self) -> set[str]:
        """What the host reports to Placement."""
        path = f"/resource_providers/{self._provider()}/traits"
        answer = self.admin.placement.get(path, microversion="1.6")  # the first that has them
        return set(answer.json()["traits"])

    def inventory(self) -> dict[str, int]:
        """How much it has in all, by resource class."""
        path = f"/resource_providers/{self._provider()}/inventories"
        answer = self.admin.placement.get(path)
        return {name: each["total"] for name, each in answer.json()["inventories"].items()}

    def disk_available_least(self) -> int:
        """In GiB, as the host reports it: what is free without what is promised."""
        compute = self.admin.compute
        answer = compute.get("/os-hypervisors/detail", microversion="2.87")  # the last that has it
        hosts = {each["service"]["host"]: each for each in answer.json()["hypervisors"]}
        return int(hosts[self.compute.host]["disk_available_least"])

    def precache(self, image: str) -> None:
        """As an administrator has an aggregate of hosts do it."""
        compute = self.admin.compute
        aggregate = compute.create_aggregate(name=f"ponds of {image}")
        compute.add_host_to_aggregate(aggregate, self._libvirtd.name)
        compute.aggregate_precache_images(aggregate, [image])

    def _provider(self) -> str:
        (provider,) = self.admin.placement.resource_providers(name=self.compute.host)
        return str(provider.id)

    def reschedule(self, extra: Sections) -> None:
        """Start the scheduler again with these settings besides its own."""
        self._nova.configure(extra)
        self._scheduler.stop()
        with self._awaiting("nova-scheduler"):
            self._scheduler.start()

    def restart_messaging(self) -> None:
        """What was on its way is lost. Wait until all processes have found it again."""
        self._rabbitmq.stop()
        with contextlib.ExitStack() as stack:
            for service in ("nova-conductor", "nova-scheduler", "nova-compute"):
                compute = self.compute if service == "nova-compute" else None
                stack.enter_context(self._awaiting(service, compute))
            self._rabbitmq.start()

    def start_compute(self, compute: NovaCompute, *program: object, **variables: object) -> None:
        """And wait until the scheduler may choose it."""
        with self._awaiting("nova-compute", compute):
            compute.start(*program, **variables)
        if compute.host not in self._discovered:
            self._nova.discover_hosts()
            self._discovered.add(compute.host)

    @contextlib.contextmanager
    def _awaiting(self, service: str, compute: NovaCompute | None = None) -> Iterator[None]:
        """After the block, wait until the service has reported since."""
        before = self._last_seen(service, compute)
        yield
        wait_for(lambda: self._has_reported(service, compute, before), _COMPUTE_SECONDS)

    def _has_reported(self, service: str, compute: NovaCompute | None, before: str | None) -> bool:
        if compute:
            compute.refuse_if_ended()
        return self._last_seen(service, compute) != before

    def _last_seen(self, service: str, compute: NovaCompute | None) -> str | None:
        where = {"host": compute.host} if compute else {}
        services = self.admin.compute.services(binary=service, **where)
        return next((each.updated_at for each in services), None)

    def offer_host(self, compute: NovaCompute, *, offered: bool = True) -> None:
        """Whether the scheduler may choose it."""
        admin = self.admin.compute
        (service,) = admin.services(binary="nova-compute", host=compute.host)
        (admin.enable_service if offered else admin.disable_service)(service)

    @contextlib.contextmanager
    def given_up(self, compute: NovaCompute) -> Iterator[None]:
        """In the block Nova takes it for dead, and waits for nothing that it would do."""
        self.force_down(compute)
        yield
        self.force_down(compute, forced=False)

    def force_down(self, compute: NovaCompute, *, forced: bool = True) -> None:
        """Have Nova take it for dead, or look again."""
        admin = self.admin.compute
        (service,) = admin.services(binary="nova-compute", host=compute.host)
        admin.update_service_forced_down(service, forced=forced)

    def host_of(self, server: str) -> str:
        return str(self.admin.compute.get_server(server).compute_host)

    def status_of_move(self, server: str) -> str:
        """Of its last one, as Nova calls it; empty if it was never moved."""
        found = self.admin.compute.get(f"/os-migrations?instance_uuid={server}").json()[
            "migrations"
        ]
        return str(max(found, key=lambda each: each["id"])["status"]) if found else ""

    def hosts_with_allocations(self, server: str) -> list[str]:
        """Where Placement has claimed something for it."""
        answer = self.admin.placement.get(f"/allocations/{server}", microversion="1.28")
        providers = {each.id: each.name for each in self.admin.placement.resource_providers()}
        return sorted(providers[each] for each in answer.json()["allocations"])

    def consumers(self) -> dict[str, set[str]]:
        """By host, whose something of it is claimed for in Placement: servers and migrations."""
        placement = self.admin.placement
        found = {}
        for each in placement.resource_providers():
            answer = placement.get(f"/resource_providers/{each.id}/allocations")
            found[each.name] = set(answer.json()["allocations"])
        return found

    def fault(self, server: str, action: str) -> str:
        """What the last action of this name came to, in Nova's words; empty if it went well."""
        compute = self.admin.compute
        path = f"/servers/{server}/os-instance-actions"
        actions = compute.get(path).json()["instanceActions"]
        request = next(each["request_id"] for each in actions if each["action"] == action)
        answer = compute.get(f"{path}/{request}", microversion="2.84")  # the first with details
        events = answer.json()["instanceAction"]["events"]
        return "; ".join(each["details"] or "" for each in events)

    def _start_all(self, *services: Service) -> None:
        """At once: each makes its database first."""
        for service in services:
            self._stack.callback(service.close)
        with ThreadPoolExecutor(len(services)) as threads:
            list(threads.map(lambda service: service.start(), services))
