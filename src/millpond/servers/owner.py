"""Whose servers a host has: each domain of ours carries its state directory's mark (B31)."""

import logging
from dataclasses import replace
from pathlib import Path

from millpond.errors import HostProblem, Tool
from millpond.hosts.host import Host
from millpond.libvirt.domains import MarkedDomain
from millpond.model.server import Server
from millpond.records import codec
from millpond.servers import steps

LOG = logging.getLogger(__name__)


def refuse_foreign_servers(host: Host) -> None:
    """Two state directories would each take the other's volumes for leftovers."""
    for domain in _unknown(host):
        if domain.record.owner != host.records.owner:
            raise HostProblem(
                f"host {host.name!r} has servers of another Millpond state directory "
                f"(owner {domain.record.owner}, server {domain.name!r})",
                f"use that state directory, or, if it is lost, '{Tool.ADOPT}' to take the servers "
                "over",
            )


def adopt(host: Host) -> list[Server]:
    """Rebuild lost records from the domains, and put our mark on those."""
    return [server for domain in _unknown(host) if (server := _adopt(host, domain))]


def _adopt(host: Host, domain: MarkedDomain) -> Server | None:
    """A domain that was cloned by hand carries another server's record: it is none of ours."""
    found = _server(domain)
    if found.id != domain.uuid:
        LOG.warning("domain %s carries the record of server %s: left alone", domain.name, found.id)
        return None
    server = replace(found, host=host.name)
    with host.records.lock(server):
        if elsewhere := host.records.host_of(server.id):
            LOG.warning("domain %s is left alone: its server is on %s", domain.name, elsewhere)
            return None
        steps.write_metadata(host, server)
        host.records.put(server)
    LOG.info("adopted server %s (%s)", server.name, server.id)
    return server


def _unknown(host: Host) -> list[MarkedDomain]:
    known = {server.id for server in host.records.all()}
    return list(host.domains.records(ignoring=known))


def _server(domain: MarkedDomain) -> Server:
    where = Path(f"metadata of domain {domain.name}")
    return codec.decode_server(domain.record.record.encode(), where)
