"""Whether a server can move while it runs, by which route, and how such a move is ended."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from millpond.errors import Conflict, Tool, UnfitHost, WrongState
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.libvirt import migration
from millpond.libvirt.migration import Route
from millpond.model.formats import DiskFormat
from millpond.model.move import MigrateDetails, Way
from millpond.model.server import Server
from millpond.servers import steps
from millpond.servers.live_steps import LIVE_MIGRATE, is_mirrored
from millpond.servers.move_plan import is_linked
from millpond.servers.move_recovery import settle
from millpond.system.waiting import wait_until
from millpond.xml.migration import find_cpu

_LOOPBACK = "tcp://127.0.0.1"
_ABORT_PATIENCE = 120.0
"""Seconds that the process which moves it has to remove what it began."""


def refuse_stopped(host: Host, server: Server) -> None:
    """What no destination can help."""
    steps.refuse_unsettled(server)
    state = host.domains.state(server.id)
    if state != "running":
        raise WrongState(server.name, state or "gone", "running, to be moved with --live")


def check_live(source: Host, destination: Host, server: Server, details: MigrateDetails) -> Route:
    """By which its bytes go. Raises what the destination lacks for a guest that runs."""
    for disk in details.here:
        mirrored = is_mirrored(details, disk)
        if disk.is_attached and disk.format is DiskFormat.PLOOP:
            reason = f"QEMU migrates no guest that has a {disk.format} disk, as {disk.role} is"
            raise UnfitHost(reason, "stop the server: then it can move")
        whole = mirrored and details.ways[disk.role] is Way.WHOLE
        if whole and disk.template and is_linked(source, disk.template):
            reason = f"{disk.role} is backed by a link or a stream, and its image is gone"
            raise UnfitHost(reason, "stop the server: then it can move")
    _check_cpu(source, destination, server)
    mirrored_roles = [each.role for each in details.here if is_mirrored(details, each)]
    return find_route(source, destination, mirrored_roles)


def _check_cpu(source: Host, destination: Host, server: Server) -> None:
    """What it was started with may be more than its definition says."""
    running, _ = migration.describe(source.libvirtd, server.id)
    cpu, hardware = find_cpu(running), server.hardware
    known = migration.is_cpu_known
    if cpu and not known(destination.libvirtd, cpu, hardware.machine, hardware.virt_type):
        reason = f"host {destination.name!r} lacks features of the CPU that the guest has"
        raise UnfitHost(reason, "choose another host, or stop the server: then it can move")


def find_route(source: Host, destination: Host, mirrored: Sequence[str]) -> Route:
    """QEMU listens at no address that nobody named: on one machine at its loopback, otherwise at
    the one in the destination's migration_uri. Without that, bytes go through libvirt's own
    connection, which carries no disks."""
    asked = destination.settings.migration_uri
    own = [each.settings.libvirt.connection_uri for each in (source, destination)]
    tls = destination.settings.migration_tls
    if urlsplit(asked).scheme == "tcp":
        return Route(address=asked, tls=tls)
    if not asked and not any(urlsplit(each).hostname for each in own):
        return Route(address=_LOOPBACK, tls=tls)
    peer = asked or own[1]
    if not asked and not urlsplit(peer).hostname:
        reason = f"host {source.name!r} cannot reach host {destination.name!r} by {peer}"
        raise UnfitHost(reason, f"set migration_uri of {destination.name!r}")
    if mirrored:
        reason = (
            f"{', '.join(mirrored)} would be copied, and migration_uri of host "
            f"{destination.name!r} names no address (tcp://…) to receive disks at"
        )
        advised = f"set migration_uri of {destination.name!r}, such as tcp://10.0.0.2"
        raise UnfitHost(reason, advised)
    return Route(peer=peer)


def abort(deployment: Deployment, server: Server) -> Server:
    """The record when it is over. The process that moves it clears away what it began; if that
    one died, it is done here."""
    current = deployment.records.find(server.id) or server
    operation = current.operation
    if operation is None or not isinstance(operation.details, MigrateDetails):
        what = f"server {server.name!r} is not being migrated"
        raise Conflict(what, f"'{Tool.SERVER} show {server.name}' says where it is")
    works = deployment.records.is_worked_on(current)
    if works:
        _abort_job(deployment, current, operation.verb, operation.details)
        wait_until(lambda: not deployment.records.is_worked_on(current), _ABORT_PATIENCE)
    with deployment.records.lock(current):
        current = deployment.records.find(server.id) or current
        return settle(deployment.host_of(current), current)


def _abort_job(deployment: Deployment, server: Server, verb: str, details: MigrateDetails) -> None:
    source = deployment.host(details.source)
    if verb != LIVE_MIGRATE or not migration.abort(source.libvirtd, server.id):
        raise Conflict(
            f"server {server.name!r} is not at the point where libvirt could abort its move",
            "interrupt the command that moves it (Ctrl-C): it undoes what it has begun",
        )
