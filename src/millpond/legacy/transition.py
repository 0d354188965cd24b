"""Servers in Nova's legacy layout on this host, and what stands in their way."""

from dataclasses import dataclass

from millpond.legacy.disk import LegacyDisk, LegacyServer
from millpond.legacy.layout import NovaLayout
from millpond.legacy.nova_domain import NovaDomainXml, objections
from millpond.libvirt.domains import DomainRecords, read_all
from millpond.records.records import Records
from millpond.system.libvirtd import Libvirtd


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyStatus:
    id: str
    name: str
    """The server's if it is Millpond's by now, else the domain's; empty if there is none."""
    adopted: bool
    layout: str
    disks: tuple[LegacyDisk, ...]
    in_the_way: tuple[str, ...]
    """Of adopting it, or of an adopted one's disks."""


def status(
    layout: NovaLayout, records: Records, host: Libvirtd, domain_records: DomainRecords
) -> list[LegacyStatus]:
    names = {server.id: server.name for server in records.all()}
    marked = {domain.uuid for domain in domain_records.all(ignoring=names)}
    found = layout.servers(known={*names, *marked})
    new = read_all(host, NovaDomainXml) if any(each.id not in names for each in found) else {}
    return [_status(each, names.get(each.id), new.get(each.id)) for each in found]


def _status(found: LegacyServer, name: str | None, domain: NovaDomainXml | None) -> LegacyStatus:
    problems = objections(found, domain) if name is None else found.obstacles
    return LegacyStatus(
        id=found.id,
        name=name or (domain.name if domain else ""),
        adopted=name is not None,
        layout=found.layout,
        disks=found.disks,
        in_the_way=tuple(problems),
    )
