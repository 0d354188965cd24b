"""Whose servers a host has: each domain of ours carries its state directory's mark (B31)."""

import logging
from dataclasses import replace
from pathlib import Path

from millpond.compute.domain_xml import record_xml
from millpond.compute.host import Host
from millpond.errors import ForeignOwner
from millpond.model.server import SCHEMA, Server
from millpond.records import codec

LOG = logging.getLogger(__name__)


def refuse_foreign_servers(host: Host) -> None:
    """Two state directories would each take the other's volumes for leftovers."""
    for name, owner, _record in _unknown(host):
        if owner != host.records.owner:
            raise ForeignOwner(host.name, name, owner)


def lost(host: Host) -> list[Server]:
    """Servers that the host's domains tell of and our records do not."""
    return [_server(record, name) for name, _owner, record in _unknown(host)]


def adopt(host: Host) -> list[Server]:
    """Rebuild lost records from the domains, and put our mark on those."""
    adopted = [replace(server, host=host.name, operation=None) for server in lost(host)]
    for server in adopted:
        with host.records.lock(server):
            host.records.put(server)
            host.domains.mark(server.id, record_xml(server, host.records.owner))
        LOG.info("adopted server %s (%s)", server.name, server.id)
    return adopted


def _unknown(host: Host) -> list[tuple[str, str, str]]:
    known = {server.id for server in host.records.all()}
    return [
        (name, record.owner, record.record)
        for name, record in host.domains.records(ignoring=known)
    ]


def _server(record: str, name: str) -> Server:
    return codec.decode(record.encode(), Server, Path(f"metadata of domain {name}"), SCHEMA)
