"""NICs, added to a server and removed from it, also while it runs."""

import logging
from dataclasses import replace
from functools import partial

from millpond.errors import BadOption, Interrupted, NotFound, Unsupported
from millpond.hosts.host import Host
from millpond.libvirt.domains import ON
from millpond.model.operation import NicDetails
from millpond.model.server import Network, Server
from millpond.records import journal
from millpond.records.journal import Step, Verb, as_step
from millpond.records.records import ServerJournal, without_operation
from millpond.servers import steps
from millpond.servers.domain_xml import interface_xml
from millpond.servers.power import NIC_REMOVAL

LOG = logging.getLogger(__name__)


def add(host: Host, server: Server, network: Network) -> Network:
    """The guest asks for its address, or is told it by its user: the config drive stays."""
    with host.records.lock(server):
        current = steps.load_idle(host, server)
        (nic,) = steps.plan_networks(host, [network])
        if any(each.mac == nic.mac for each in current.networks):
            reason = f"{nic.mac} is a NIC of this server"
            raise BadOption("--network", reason, "choose another MAC")
        details = NicDetails(mac=nic.mac)
        larger = replace(current, networks=(*current.networks, nic))
        notes = ServerJournal(host.records, details)
        with steps.taking_fixed(host, current, [network], [nic]):
            journal.run(adding(host, details), larger, notes, host.watch)
    LOG.info("added NIC %s to server %s", nic.mac, server.name)
    return nic


def remove(host: Host, server: Server, mac: str) -> None:
    """Called again while the guest still has the NIC, it goes on waiting for it."""
    with host.records.lock(server):
        current = steps.load_idle(host, server, but=(NIC_REMOVAL,))
        details = NicDetails(mac=_get(current, mac).mac)
        verb, notes = removing(host, details), ServerJournal(host.records, details)
        if _get(current, mac).ports and host.domains.state(server.id) in ON:
            reason = "libvirt does not know it, because its ports are published"
            raise Unsupported(f"removing NIC {mac} from a running server", reason, "stop it first")
        if (left := current.operation) is None:
            journal.run(verb, current, notes, host.watch)
        elif left.details == details:
            journal.recover(verb, left.step, current, notes, host.watch)
        else:
            raise Interrupted(server.name, left.verb, left.step)
    LOG.info("removed NIC %s from server %s", mac, server.name)


def adding(host: Host, details: NicDetails) -> Verb[Server]:
    """What its process left rolls forward: the guest may have the NIC, and use it."""
    undone = partial(_without, details)
    attach = as_step(partial(_attach, host, details))
    return Verb(
        "nic add",
        (Step("attach", attach, partial(_detach, host, details)),),
        finished=without_operation,
        undone=lambda each: without_operation(undone(each)),
        resumes=True,
    )


def removing(host: Host, details: NicDetails) -> Verb[Server]:
    """It leaves the record last. Once the guest was asked, it may let the NIC go however late:
    then the removal stays recorded."""
    finished = partial(_without, details)
    return Verb(
        NIC_REMOVAL,
        (Step("detach", as_step(partial(_detach, host, details))),),
        finished=lambda each: without_operation(finished(each)),
        undone=without_operation,
        resumes=True,
    )


def _attach(host: Host, details: NicDetails, server: Server) -> None:
    nic = _get(server, details.mac)
    if host.domains.state(server.id) in ON:
        steps.reserve_addresses(host, [nic])
        host.networks.nics.attach(server.id, interface_xml(nic, server.hardware.vif_model))
        steps.write_metadata(host, without_operation(server))
    else:
        steps.define(host, server)


def _detach(host: Host, details: NicDetails, server: Server) -> None:
    nic, remaining = _get(server, details.mac), _without(details, server)
    if host.domains.state(server.id) in ON:
        host.networks.nics.detach(server.id, nic.mac)
        steps.write_metadata(host, without_operation(remaining))
    else:
        steps.define(host, remaining)
    steps.free_addresses(host, [nic])


def _without(details: NicDetails, server: Server) -> Server:
    kept = tuple(each for each in server.networks if each.mac != details.mac)
    return replace(server, networks=kept)


def _get(server: Server, mac: str) -> Network:
    for each in server.networks:
        if each.mac == mac.lower():
            return each
    known = ", ".join(each.mac for each in server.networks) or "none"
    raise NotFound(f"server {server.name!r} has no NIC {mac!r}", f"it has {known}")
