"""What nothing of ours names: reported with whose it may be, never removed (B31)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from millpond.disks.rbd_storage import is_complete
from millpond.doctor import moves
from millpond.doctor.finding import Finding, counted, ok, problem, some, warning
from millpond.errors import PoolNotFound, Tool
from millpond.hosts.cache import open_store
from millpond.hosts.capabilities import volume_owners
from millpond.hosts.host import Host
from millpond.libvirt.domains import CONSOLE_LOG, MarkedDomain
from millpond.libvirt.locality import is_locality_probe
from millpond.libvirt.sharing import is_sharing_probe
from millpond.model.formats import DiskFormat
from millpond.model.names import UUID, split_volume_name, template_name

_DIRECTORY = re.compile(UUID)
_BASE = re.compile(r"[0-9a-f]{40}(\.\w+)?")  # SHA-1 of an image's id, as Nova names a base


def domains(host: Host) -> Iterator[Finding]:
    """Servers that only their domain tells of: the state directory was lost, or is another."""
    known = {server.id for server in host.records.all()}
    marked = list(host.domain_records.all(ignoring=known))
    since = {server.name for server in host.records.all()}  # made while we were listing
    lost = [domain for domain in marked if domain.name not in since]
    for domain in lost:
        yield moves.describe_copy(host, domain) or _describe_lost(domain)
    if not lost:
        yield ok("no domain of Millpond's is without a record")


def _describe_lost(domain: MarkedDomain) -> Finding:
    if domain.uuid not in domain.record.record:
        return warning(
            f"domain {domain.name!r} carries the record of another server: somebody cloned it",
            "it is not Millpond's; its disks may be that server's, so do not start it",
        )
    return problem(
        f"domain {domain.name!r} is a server of Millpond's that no record here tells of",
        f"'{Tool.ADOPT}' takes it over, unless another state directory has it",
    )


def volumes(host: Host) -> Iterator[Finding]:
    plan = host.pool_plan
    named = [each.name for each in plan.all().values() if each != plan.base]
    found = [finding for name in named if (finding := _in_pool(host, name))]
    found += [finding for name in named if (finding := _incomplete(host, name))]
    if finding := _in_base_pool(host):
        found.append(finding)
    yield from found or [ok("the pools hold nothing but what Millpond's records name")]


def directories(host: Host) -> Iterator[Finding]:
    where = host.shared.settings.instances_path
    named = [path for path in sorted(where.glob("*-*")) if _DIRECTORY.fullmatch(path.name)]
    ours = (server.id for server in host.shared.records.all())  # other hosts may be here, too
    known = {*ours, *host.domains.names().values()}
    left = [path.name for path in named if path.name not in known and _holds_a_log_only(path)]
    if left:
        yield warning(
            f"{counted(len(left), 'directory', 'directories')} in {where} with nothing but the "
            f"console's log of a server that is gone: {some(left)}",
            "remove what nobody wants to read any more",
        )
    else:
        yield ok("no server that is gone has left its directory")


def _in_pool(host: Host, name: str) -> Finding | None:
    try:
        pool = host.pools.open(name)
    except PoolNotFound:
        return None
    listed = [volume.name for volume in pool.volumes()]
    owners = volume_owners(host, pool)  # after the listing: a record is older than its volume
    named = {
        each
        for each in listed
        if each in owners or is_sharing_probe(each) or is_locality_probe(each)
    }
    strays = [each for each in listed if each not in named and pool.find(each)]
    if strays and pool.capabilities.remote:
        return ok(f"{counted(len(strays), 'volume')} in pool {name!r} may be those of other hosts")
    return _describe_strays(pool.name, strays, _servers(host)) if strays else None


def _incomplete(host: Host, name: str) -> Finding | None:
    """In a cluster an image gets the name of a template when it is complete, and loses that name
    before it is removed."""
    try:
        pool = host.pools.open(name)
    except PoolNotFound:
        return None
    access = host.pool_plan.all()[name].ceph
    named = [each for each in pool.names() if _BASE.fullmatch(each)] if access else []
    found = [each for each in named if access and not is_complete(access, each)]
    if not (access and found):
        return None
    return warning(
        f"{counted(len(found), 'image')} in Ceph pool {access.pool} with the name of a template "
        f"that is not complete: {some(found)}",
        f"if nobody else made it, an older version left it: 'rbd rm {access.pool}/{found[0]}'",
    )


def _in_base_pool(host: Host) -> Finding | None:
    """What backs disks in Nova's legacy layout is no stray, whoever has the server."""
    store = open_store(host)
    unknown = store.unknown() if store else []
    strays = sorted(set(unknown) - _needed_by_nova(host)) if unknown else []
    return _describe_strays(host.pool_plan.base.name, strays, _templates(host)) if strays else None


def _needed_by_nova(host: Host) -> set[str]:
    servers = host.nova_layout({}).servers() if host.seems_local else []
    return {disk.base.volume for server in servers for disk in server.disks if disk.base}


def _describe_strays(pool: str, strays: Sequence[str], owners: Mapping[str, str]) -> Finding:
    described = [f"{each} ({_likely_owner(each, owners)})" for each in strays]
    return warning(
        f"{counted(len(strays), 'volume')} in pool {pool!r} that no record names: "
        f"{some(described)}",
        f"'{Tool.VOLUMES} {pool}' lists them; remove what nobody needs, Millpond never does",
    )


def _likely_owner(name: str, owners: Mapping[str, str]) -> str:
    """By its name alone."""
    if disk := split_volume_name(name):
        id, role = disk
        server = owners.get(id, f"server {id}, which is not here")
        return f"named like disk {role!r} of {server}"
    if name in owners:
        return f"named like {owners[name]}"
    if _BASE.fullmatch(name):
        return "named like the base of an image that is not here"
    return "no name of Millpond's"


def _servers(host: Host) -> Mapping[str, str]:
    """By UUID: servers, and domains that are none."""
    domains = {uuid: f"domain {name!r}" for name, uuid in host.domains.names().items()}
    return {**domains, **{each.id: f"server {each.name!r}" for each in host.records.all()}}


def _templates(host: Host) -> Mapping[str, str]:
    return {
        template_name(image.id, format): f"the template of image {image.name!r}"
        for image in host.shared.catalogue.all()
        for format in DiskFormat
    }


def _holds_a_log_only(path: Path) -> bool:
    names = [each.name for each in path.iterdir()] if path.is_dir() else []
    return bool(names) and all(name.startswith(CONSOLE_LOG) for name in names)
