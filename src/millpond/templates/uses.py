"""Who uses the templates on this host: records, domains' chains, volumes, legacy disks (B21).

A raw disk is never looked into, and what libvirt guessed of one counts for nothing.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from millpond.errors import PoolNotFound, UnreadableRecord
from millpond.libvirt.pool import Pool
from millpond.libvirt.pools import PoolWanted
from millpond.model.formats import Backend, DiskFormat
from millpond.model.server import Server
from millpond.records.records import Records
from millpond.templates.cache_manager import Uses
from millpond.templates.store import TemplateStore
from millpond.templates.streams.plan import StreamDirectory
from millpond.xml.domain import ChainsXml, LayerXml

Use = tuple[str, str]
"""A template's name, and who uses it, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateUses:
    records: Records
    find_chains: Callable[[], Iterator[ChainsXml]]
    """Of every domain of the host, as it is defined and as it runs."""
    open_pool: Callable[[str], Pool]
    """As it is: none is made."""
    base: PoolWanted
    find_legacy_uses: Callable[[], tuple[list[Use], tuple[str, ...]]]
    """By disks that lie in no pool; and, in words, disks of which it is not known."""
    find_store: Callable[[], TemplateStore | None]
    """None where no template was ever made."""
    hosts_using: Callable[[str], tuple[str, ...]]
    """Other hosts that share the cache, in words."""

    def users(self, template: str) -> tuple[str, ...]:
        """Whoever uses a template, ours or not: records, domains, volumes and legacy disks of
        this host, and other hosts. Nothing is removed without asking."""
        return self.all().of(template) + self.hosts_using(template)

    def promised(self) -> Uses:
        """By our records alone, which name a template before it is fetched."""
        servers, unknown = self._servers()
        return _gather(_of_records(servers), unknown)

    def all(self) -> Uses:
        servers, unknown = self._servers()
        legacy, unreadable = self.find_legacy_uses()
        found = [*_of_records(servers), *self._of_domains(), *self._of_volumes(servers), *legacy]
        return _gather(found, unknown + unreadable)

    def _servers(self) -> tuple[list[Server], tuple[str, ...]]:
        """And, in words, those whose records cannot be read: they may use any template."""
        servers, unreadable = self.records.readable()
        return servers, tuple(f"perhaps server {each.path.stem}: {each}" for each in unreadable)

    def _of_domains(self) -> Iterator[Use]:
        links = self._links()
        for domain in self.find_chains():
            for template in filter(None, self._named_by(domain, links)):
                yield template, domain.name

    def _links(self) -> Mapping[str, str]:
        """Templates that are links, by what they lead to in the network, as a domain names it; and
        those that arrive, or just have, by the sockets where they are served."""
        store = self.find_store()
        linked = [(each, each.link) for each in store.all() if each.link] if store else []
        sources = [(each, link.rbd or link.iscsi) for each, link in linked]
        found = {source.location: each.volume for each, source in sources if source}
        arriving = store.streams() if store else []
        for each in arriving:
            with suppress(FileNotFoundError, UnreadableRecord):
                assert store is not None  # it has streams
                found[str(StreamDirectory(store.stream(each)).plan().socket)] = each
        return found

    def _named_by(self, domain: ChainsXml, links: Mapping[str, str]) -> Iterator[str | None]:
        for path in (domain.kernel, domain.initrd):
            yield self._template_at(path)
        for disk in domain.disks:
            for layer in (*_layers(disk), *_layers(disk.mirror)):
                if layer.pool == self.base.name:
                    yield layer.volume
                yield links.get(layer.name or layer.socket or "")
                yield self._template_at(layer.file or layer.device)

    def _of_volumes(self, servers: Sequence[Server]) -> Iterator[Use]:
        """Only of those that are qcow2 by our record: in a raw one, the guest wrote the header.
        That a volume names none proves nothing."""
        ours = {
            (disk.pool, disk.volume): server.name
            for server in servers
            for disk in server.disks
            if disk.pool and disk.format is DiskFormat.QCOW2
        }
        for pool in sorted({pool for pool, _ in ours}):
            with suppress(PoolNotFound):
                for volume in self.open_pool(pool).volumes():
                    template = self._template_at(volume.backing_path)
                    if template and (pool, volume.name) in ours:
                        yield template, ours[pool, volume.name]

    def _template_at(self, path: str | None) -> str | None:
        """The file's name, if it lies in the cache."""
        if not path or not path.startswith("/"):
            return None
        parent, cache = os.path.dirname(path), self.base.path
        if parent != cache and os.path.realpath(parent) != os.path.realpath(cache):
            return None
        return os.path.basename(path)


def _of_records(servers: Sequence[Server]) -> Iterator[Use]:
    """A disk that is backed by its template, or a clone in a Ceph cluster, where the template goes
    with the one here; or an operation that may be making one from it."""
    for server in servers:
        for disk in server.disks:
            stands = disk.overlay or disk.backend is Backend.RBD
            if disk.template and (stands or server.operation):
                yield disk.template.volume, server.name


def _layers(top: LayerXml | None) -> Iterator[LayerXml]:
    while top:
        yield top
        top = top.below


def _gather(uses: Sequence[Use] | Iterator[Use], unreadable: tuple[str, ...] = ()) -> Uses:
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for template, user in uses:
        found[template][user] = None
    return Uses(
        by_template={name: tuple(users) for name, users in found.items()}, unreadable=unreadable
    )
