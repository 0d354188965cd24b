"""Servers in Nova's legacy layout on this host, and what stands in their way."""

from dataclasses import dataclass, replace

from millpond.legacy.disk import LegacyDisk, LegacyServer
from millpond.legacy.layout import NovaLayout
from millpond.legacy.nova_domain import NovaDomainXml, objections
from millpond.libvirt.domains import DomainRecords, read_all
from millpond.model.transition import is_moving
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
    interrupted: bool = False
    """Something has ended in the middle of moving its disks."""


def status(
    layout: NovaLayout, records: Records, host: Libvirtd, domain_records: DomainRecords
) -> list[LegacyStatus]:
    servers = {each.id: each for each in records.all()}
    names = {each.id: each.name for each in servers.values()}
    moving = {each.id for each in servers.values() if is_moving(each)}
    marked = {domain.uuid for domain in domain_records.all(ignoring=names)}
    found = [
        (layout.find_moving(each.id) or each) if each.id in moving else each
        for each in layout.servers(known={*names, *marked})
    ]
    new = read_all(host, NovaDomainXml) if any(each.id not in names for each in found) else {}
    left = {id for id in moving if not records.is_worked_on(servers[id])}
    return [
        replace(_status(each, names.get(each.id), new.get(each.id)), interrupted=each.id in left)
        for each in found
    ]


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
