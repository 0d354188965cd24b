"""Edit the definition of a server's domain: all of it that the record does not speak of."""

import logging

from millpond.errors import BadInput, Conflict, LibvirtFailed
from millpond.hosts.host import Host
from millpond.libvirt.domains import read_definition, write_definition
from millpond.model.server import Server
from millpond.servers import steps
from millpond.xml.domain import DomainXml
from millpond.xml.keeping import keep

LOG = logging.getLogger(__name__)

_ELSEWHERE = "leave that as it was: 'server set', 'resize', 'disk' and 'nic' change it"


def read(host: Host, server: Server) -> str:
    """As it is defined, with its secrets."""
    return read_definition(host.libvirtd, server.id)


def write(host: Host, server: Server, before: str, text: str) -> None:
    """``text`` in place of ``before``. What contradicts the record is refused."""
    with host.records.lock(server):
        current = steps.load_idle(host, server)
        if read(host, current) != before:
            what = f"the domain of server {server.name!r} was changed meanwhile"
            raise Conflict(what, "edit it again")
        checked = _check(host, current, text)
        try:
            write_definition(host.libvirtd, server.name, checked)
        except LibvirtFailed as error:
            raise BadInput(f"libvirt refuses it: {error.detail}", "edit it again") from error
    LOG.info("edited server %s", server.name)


def _check(host: Host, server: Server, text: str) -> str:
    ours = steps.describe(host, server)
    try:
        wanted = DomainXml.from_xml(text)
        if wanted.uuid != server.id:
            raise BadInput(f"the UUID of server {server.name!r} cannot be changed", _ELSEWHERE)
        kept = keep(text, ours, ours)
    except (ValueError, TypeError) as error:
        raise BadInput(f"this is no definition of a domain: {error}", "edit it again") from error
    if kept.lost:
        words = "; ".join(kept.lost)
        raise BadInput(f"the record of server {server.name!r} says otherwise: {words}", _ELSEWHERE)
    return kept.xml
