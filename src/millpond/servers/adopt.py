"""Adopt a server that Nova made: a record for its domain and its disks, where they are.

Nothing is restarted, and nothing is moved.
"""

import logging
from dataclasses import replace

from millpond.errors import BadName, Conflict, NameTaken, NotFound, Tool
from millpond.hosts.host import Host
from millpond.legacy.disk import LegacyServer
from millpond.legacy.layout import NovaLayout
from millpond.legacy.nova_domain import NovaDomainXml, objections, server_of
from millpond.libvirt.domains import ON
from millpond.model.names import ServerId, check_name
from millpond.model.server import Server
from millpond.servers import steps

LOG = logging.getLogger(__name__)

_ADOPTABLE = "change that with Nova or virsh, and try again; docs/legacy.md says what is possible"


def check_adoptable(
    host: Host, layout: NovaLayout, id: ServerId
) -> tuple[LegacyServer, NovaDomainXml]:
    """What Nova has of it; raises what is in the way."""
    if known := host.records.find(id):
        what = f"server {id} is Millpond's already, named {known.name!r}"
        raise Conflict(what, f"'{Tool.SERVER} show {known.name}' shows it")
    found = layout.find(id)
    if found is None and host.records.has_name(id):
        what = f"server {id!r} is Millpond's already"
        raise Conflict(what, f"'{Tool.SERVER} show {id}' shows it")
    if found is None:
        what = f"no server {id!r} has disks in Nova's legacy layout on this host"
        raise NotFound(what, f"'{Tool.LEGACY}' lists those that have")
    domain = host.domains.read(id, NovaDomainXml)
    if (reasons := tuple(objections(found, domain))) or domain is None:
        raise Conflict(f"server {id} cannot be adopted: {'; '.join(reasons)}", _ADOPTABLE)
    return found, domain


def adopt(host: Host, layout: NovaLayout, id: ServerId) -> Server:
    """The caller has made sure that Nova does not work on it any more, and that the host's servers
    are all ours (refuse_foreign_servers): once for however many it adopts."""
    found, domain = check_adoptable(host, layout, id)
    made = replace(server_of(found, domain, host.name), should_run=host.domains.state(id) in ON)
    try:
        return _adopt(host, _name_as_in_nova(made, domain))
    except (BadName, NameTaken) as error:
        LOG.debug("it keeps the domain's name %s: %s", made.name, error)
        return _adopt(host, made)


def _name_as_in_nova(server: Server, domain: NovaDomainXml) -> Server:
    """As its owner knows it, if that can be a name here."""
    wanted = domain.instance.name if domain.instance else None
    return replace(server, name=check_name("a server", wanted or ""))


def _adopt(host: Host, server: Server) -> Server:
    with host.records.lock(server), host.records.lock_name(server.name):
        steps.refuse_taken_name(host, server)
        # Ended between the two, 'doctor --adopt' makes the record from the domain.
        steps.write_metadata(host, server)
        host.records.put(server)
        steps.sync_autostart(host, server)
    LOG.info("adopted server %s (%s) of Nova's", server.name, server.id)
    return server
