"""A server that runs is moved from a stream onto the file of its template, which is whole by now,
while its guest goes on. Nothing that the guest wrote before is copied, and its disk stays the same
file.

QEMU gives no layer of a disk that runs another one below it. So the guest goes on in an empty
overlay; that is copied into one above the same disk on the file; and this is written into the
disk.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from millpond.errors import MillpondError, OverlayUnclear
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.model.formats import DiskFormat
from millpond.model.layer import Chain, FileSource, Layer
from millpond.model.names import overlay_name
from millpond.model.operation import SettleDetails
from millpond.model.server import Content, Disk, Server
from millpond.records import journal
from millpond.records.journal import Step, Verb, as_step
from millpond.records.records import ServerJournal, without_operation
from millpond.servers import steps
from millpond.servers.overlays import (
    BlockJob,
    OverlaidDisks,
    name_of,
    path_of,
    plan_overlay,
    remove_overlays,
)
from millpond.servers.streams import find_streaming
from millpond.system import files
from millpond.xml.domain import DiskXml

LOG = logging.getLogger(__name__)

SETTLE = "settle"


def settle(host: Host, server: Server) -> bool:
    """Whether anything was moved: not of a server that is off, whose next start needs nothing of
    this, and not as long as the template is still arriving."""
    with host.records.lock(server):
        current = steps.load_idle(host, server, but=(SETTLE,))
        if current.operation:
            finish(host, current)
        elif details := plan_settling(host, current):
            notes = ServerJournal(host.records, details)
            journal.run(settling(host, details), current, notes, host.watch)
        else:
            return False
    LOG.info("server %s reads its template's own file now", server.name)
    return True


def settle_all(host: Host, template: str) -> Sequence[str]:
    """All servers with a disk on this template. The names of those that could not be moved yet:
    they stay on the stream, or in the middle, until this is called again. Domains that Nova
    defines are Nova's: they stay until they are started or migrated."""
    left = []
    for server in host.records.all() if isinstance(host.shared, Deployment) else ():
        if any(each.template and each.template.volume == template for each in server.disks):
            try:
                settle(host, server)
            except MillpondError as error:
                LOG.warning("server %s still reads from the stream: %s", server.name, error)
                left.append(server.name)
    return left


def finish(host: Host, server: Server) -> Server:
    """What was interrupted; its lock is held."""
    if not server.operation or not isinstance(server.operation.details, SettleDetails):
        return server
    details, step = server.operation.details, server.operation.step
    verb, notes = settling(host, details), ServerJournal(host.records, details)
    return journal.recover(verb, step, server, notes, host.watch) or server


def find_unsettled(host: Host, server: Server) -> list[Disk]:
    """Disks that its guest reads from a stream although their templates are whole."""
    return [each for each in find_movable(host, server) if has_arrived(host, each)]


def find_movable(host: Host, server: Server) -> list[Disk]:
    """What is only read cannot get an overlay: it leaves the stream when it is ejected, or by the
    next start."""
    streaming = find_streaming(host, server)
    return [each for each in streaming if each.overlay and each.content is not Content.CDROM]


def has_arrived(host: Host, disk: Disk) -> bool:
    """Whether its template is a volume by now. Only its record says so: a file may have been there
    before it was whole."""
    store = host.find_template_store()
    template = store.find(disk.template.volume) if store and disk.template else None
    return template is not None and template.link is None


def plan_settling(host: Host, server: Server) -> SettleDetails | None:
    overlays = {
        each.role: plan_overlay(host, server, each, overlay_name)
        for each in find_unsettled(host, server)
    }
    if not overlays:
        return None
    return SettleDetails(overlays=overlays, state=host.domains.state(server.id) or "")


def settling(host: Host, details: SettleDetails) -> Verb[Server]:
    """Of what could not even begin nothing is left; beyond that it goes forward, from whatever it
    finds: one overlay or the other, jobs under way, ready or failed, the server off."""
    moved = _Moved(host, details)
    return Verb(
        SETTLE,
        (
            Step("overlay", as_step(moved.make_overlays), moved.remove_overlays),
            Step("rebase", as_step(moved.rebase)),
            Step("commit", as_step(moved.commit)),
            Step("tidy", as_step(moved.remove_overlays)),
        ),
        finished=without_operation,
        undone=without_operation,
        resumes=True,
    )


class _Moved:
    def __init__(self, host: Host, details: SettleDetails) -> None:
        self._host = host
        self._details = details
        self._first = OverlaidDisks(host, details.overlays)
        self._second = OverlaidDisks(host, details.rebased)
        self._may_be_open = True

    def make_overlays(self, server: Server) -> None:
        """Those of a process that died are empty."""
        self.remove_overlays(server)
        if self._first.is_on(server):
            self._first.create(server)
            self._second.create(server)
            self._may_be_open = False

    def rebase(self, server: Server) -> None:
        """The domain's copy of the record tells of it from before until after: who makes a lost
        state directory anew from the domains must not forget the overlays."""
        steps.write_metadata(self._host, server)  # waits for what was asked by who died
        above = self._find_tops(server)
        streaming = find_movable(self._host, server)
        own = [each.role for each in streaming if each.target not in above]
        if overlays := {role: self._details.overlays[role] for role in own}:
            OverlaidDisks(self._host, overlays).freeze(server)
        self._advance(server, self._first)

    def commit(self, server: Server) -> None:
        """The definition names volumes again, the template's, too."""
        steps.write_metadata(self._host, server)
        self._advance(server, self._first, self._second)
        if tops := self._find_tops(server):
            self._first.merge(server, tops)
        else:
            steps.define(self._host, server)
        domains = self._host.domains
        if self._details.state == "running" or domains.is_stuck(server.id):
            domains.resume(server.id)  # whoever died may have left it paused
        steps.write_metadata(self._host, without_operation(server))

    def remove_overlays(self, server: Server) -> None:
        remove_overlays(server, self._first, self._second)

    def _find_tops(self, server: Server) -> dict[str, DiskXml]:
        return self._first.find_tops(server) | self._second.find_tops(server)

    def _advance(self, server: Server, *overlaid: OverlaidDisks) -> None:
        """Until none of these overlays is on top, as long as the server runs."""
        jobs: dict[str, BlockJob] = {}
        while self._first.is_on(server) and (tops := self._tops_of(server, overlaid)):
            for top in tops.values():
                name = name_of(top.source)
                copies = name in self._first.volumes
                begin = self._copy if copies else self._write_back
                job = jobs.setdefault(name, BlockJob(self._host))
                job.advance(server, top, partial(begin, server, top), copies=copies)

    def _tops_of(self, server: Server, overlaid: Sequence[OverlaidDisks]) -> Mapping[str, DiskXml]:
        return {target: top for each in overlaid for target, top in each.find_tops(server).items()}

    def _copy(self, server: Server, top: DiskXml) -> None:
        """What the guest has written since it came here."""
        disk = server.get_disk(top.target)
        path = Path(self._second.path(disk.role))
        if self._may_be_open and files.is_open(path):
            reason = "libvirt has lost track of the layers of its disk"
            raise OverlayUnclear(path.name, server.name, reason)
        self._host.block_jobs.mirror(server.id, top.target, self._chain(disk, path))

    def _write_back(self, server: Server, top: DiskXml) -> None:
        self._host.block_jobs.commit(server.id, top.target, path_of(top))

    def _chain(self, disk: Disk, path: Path) -> Chain:
        """By paths: libvirt copies into no disk that is named by its volume (trap 15)."""
        assert disk.template  # it streams from one
        pools, template = self._host.pools, disk.template
        own = pools.ensure(disk.pool).get(disk.volume)
        base = pools.ensure(template.pool).get(template.volume)
        return (
            Layer(source=FileSource(path=str(path)), format=DiskFormat.QCOW2),
            Layer(source=FileSource(path=own.path), format=disk.format),
            Layer(source=FileSource(path=base.path), format=template.format),
        )
