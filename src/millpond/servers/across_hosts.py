"""Verbs for which a host is chosen, or that go on without it."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address

from millpond.errors import ConnectionLost, HostNotConfigured, HostProblem, HostUnreachable
from millpond.hosts.cache import has_template
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.libvirt.domains import ON, Domains
from millpond.model.callbacks import Progress, noop
from millpond.model.devices import Vnc
from millpond.model.image import Image
from millpond.model.names import ServerId
from millpond.model.server import Network, NetworkKind, Server
from millpond.records.records import Records
from millpond.scheduling.decision import Decision
from millpond.scheduling.query import Purpose, SchedulingRequest
from millpond.scheduling.scheduler import HostPlan, Plan
from millpond.servers import create as creation
from millpond.servers import delete as deletion
from millpond.servers import steps
from millpond.servers.create import ServerRequest, plan_server, scheduling_request
from millpond.servers.streams import find_waiting

LOG = logging.getLogger(__name__)

UNKNOWN = "unknown"
"""So begins the state of a server whose host cannot be asked."""

_DOING = {
    "create": "creating",
    "delete": "deleting",
    "start": "starting",
    "stop": "stopping",
    "reboot": "rebooting",
    "migrate": "migrating",
    "live migrate": "migrating",
    "evacuate": "evacuating",
    "pause": "pausing",
    "unpause": "unpausing",
    "rebuild": "rebuilding",
    "rescue": "rescuing",
    "unrescue": "unrescuing",
}


def statuses(servers: Sequence[Server], records: Records, domains: Domains) -> Mapping[str, str]:
    """The state of each server by its id. Of one in the middle of an operation the record tells,
    and its domain, which may be locked, is not asked."""
    idle = [server.id for server in servers if not server.operation]
    states = domains.states(idle) if idle else {}
    return {
        server.id: _underway(server, records) or states.get(server.id, "missing")
        for server in servers
    }


def _underway(server: Server, records: Records) -> str | None:
    operation = server.operation
    if operation is None:
        return None
    if records.is_worked_on(server):
        return _DOING.get(operation.verb, operation.verb)
    return f"interrupted ({operation.verb}: {operation.step})"


Addresses = Mapping[str, tuple[str, ...]]
"""By MAC."""

_PATIENCE = 2.0
"""Seconds that guests have to answer, all together: nobody waits longer for a list."""


def create(
    deployment: Deployment,
    request: ServerRequest,
    host: str = "",
    *,
    start: bool = True,
    progress: Progress = noop,
) -> Server:
    """On the best host that has room, or on the named one if it is fit for it."""

    def create_on(name: str) -> Server:
        there = deployment.host(name)
        return creation.create(there, request, start=start, progress=progress)

    if not deployment.schedules:
        return create_on(host)
    asked = scheduling_request(request, host)
    return deployment.scheduler.place(asked, _planning(deployment, request), create_on)


def decide(deployment: Deployment, request: ServerRequest, host: str = "") -> Decision | None:
    """Where a server would go, with a verdict for every host; None where nobody is asked."""
    if not deployment.schedules:
        return None
    asked, plan = scheduling_request(request, host), _planning(deployment, request)
    return deployment.scheduler.decide(asked, plan, everything=True)


def check_image(deployment: Deployment, server: Server, image: Image) -> None:
    """Whether its host takes another image of it, as it would have to for a new server (B34)."""
    if not deployment.schedules:
        return
    host, flavor = deployment.host_of(server), server.flavor
    asked = SchedulingRequest(
        server=server.id,
        image_format=image.format,
        vcpus=flavor.vcpus,
        memory=flavor.memory,
        root=server.get_disk().size,
        image_properties=image.properties,
        extra_specs=flavor.extra_specs,
        host=server.host,
        purpose=Purpose.REBUILD,
    )
    choice = host.settings.libvirt.selection.choose(image.format)
    there = HostPlan(server=server, native=choice.native, cached=False)
    decision = deployment.scheduler.decide(asked, lambda _host: there)
    if not decision.choices:
        raise decision.no_valid_host()


def delete(deployment: Deployment, name_or_id: str, *, force: bool = False) -> None:
    """With ``force`` also a server whose host does not answer or is not configured: what is there
    of it stays there."""
    server = deployment.server(name_or_id)
    try:
        deletion.delete(deployment.host_of(server), server, force=force)
    except (HostUnreachable, ConnectionLost, HostNotConfigured) as error:
        if not force:
            raise
        LOG.warning("the domain and the disks of %s stay behind: %s", server.name, error)
        with deployment.records.lock(server):
            deletion.release_move(deployment.claims, deployment.records.find(server.id) or server)
            if deployment.claims:
                with steps.log_placement_errors(server):
                    deployment.claims.release(server)
            deployment.records.remove(server.id)


def states(deployment: Deployment, servers: Sequence[Server]) -> Mapping[str, str]:
    """By the server's id; also of those whose host does not answer."""
    found: dict[str, str] = {}
    for name in {each.host for each in servers}:
        theirs = [each for each in servers if each.host == name]
        found |= _states_on(deployment, name, theirs)
    return found


def _states_on(deployment: Deployment, name: str, servers: Sequence[Server]) -> Mapping[str, str]:
    if name not in deployment.hosts:
        return {each.id: f"{UNKNOWN}: host {name} is not configured" for each in servers}
    host = deployment.hosts[name]
    try:
        return statuses(servers, host.records, host.domains)
    except HostProblem as error:
        LOG.warning("%s; %s", error, error.advice)
        silent = f"{UNKNOWN}: host {name} does not answer"
        return {each.id: _underway(each, deployment.records) or silent for each in servers}


def waits(
    deployment: Deployment, servers: Sequence[Server], states: Mapping[str, str]
) -> Mapping[str, str]:
    """For what those wait whose guests are paused until they can read it, by the server's id."""
    found: dict[str, str] = {}
    for name, host in deployment.hosts.items():
        paused = [each for each in servers if each.host == name and states[each.id] == "paused"]
        with suppress(HostProblem):
            found |= {id: each.what for id, each in find_waiting(host, paused).items()}
    return found


def addresses(
    deployment: Deployment, servers: Sequence[Server], states: Mapping[str, str]
) -> Addresses:
    """By MAC, of the servers that run. What cannot be found out is left out, and is no error."""
    found: dict[str, tuple[str, ...]] = {}
    for name, host in deployment.hosts.items():
        on = [each for each in servers if each.host == name and states[each.id] in ON]
        if on:
            with suppress(HostProblem):
                found |= _find_addresses(host, on)
    return found


def _find_addresses(host: Host, servers: Sequence[Server]) -> Addresses:
    """Of the interfaces of servers that run. What nobody knows is left out: a guest that is still
    booting has none, and in a network of QEMU's own it cannot be reached by one."""
    reachable = [
        (server.id, each)
        for server in servers
        for each in server.networks
        if each.kind is not NetworkKind.USER and each.mac
    ]
    found: dict[str, tuple[str, ...]] = {
        each.mac: (_plain(each),) for _, each in reachable if each.address
    }
    leased = {each.source for _, each in reachable if each.kind is NetworkKind.NETWORK}
    found |= {mac: each for mac, each in _leases(host, leased).items() if mac not in found}
    unknown: dict[ServerId, set[str]] = {}
    for id, each in reachable:
        if each.mac not in found:
            unknown.setdefault(id, set()).add(each.mac)
    return {**found, **host.networks.heard(unknown, _PATIENCE)} if unknown else found


def displays(
    deployment: Deployment, servers: Sequence[Server], states: Mapping[str, str]
) -> Mapping[str, Vnc]:
    """By id, the VNC displays of servers that run, with the port that libvirt found free."""
    found: dict[str, Vnc] = {}
    for each in servers:
        if each.devices.vnc and states[each.id] in ON:
            with suppress(HostProblem):
                running = deployment.host_of(each).domains.description(each.id)
                ports = [it.port for it in running.graphics if it.type == "vnc"] if running else []
                if ports and ports[0]:
                    found[each.id] = replace(each.devices.vnc, port=ports[0])
    return found


def _plain(network: Network) -> str:
    return network.address.partition("/")[0]


def _leases(host: Host, networks: set[str]) -> dict[str, tuple[str, ...]]:
    """The newest of each kind: a guest that became a new machine after it had booted has two for a
    while. One call per network, however many servers are in it."""
    found: dict[str, dict[int, str]] = {}
    for name in sorted(networks):
        for lease in sorted(host.networks.leases(name), key=lambda each: each.expires):
            found.setdefault(lease.mac, {})[ip_address(lease.address).version] = lease.address
    return {mac: tuple(addresses.values()) for mac, addresses in found.items()}


def _planning(deployment: Deployment, request: ServerRequest) -> Plan:
    def plan(name: str) -> HostPlan:
        host = deployment.hosts[name]
        choice = host.settings.libvirt.selection.choose(request.image.format)
        return HostPlan(
            server=plan_server(host, request),
            native=choice.native,
            cached=has_template(host, request.image.id, choice.template_format, choice.backend),
        )

    return plan
