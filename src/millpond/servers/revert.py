"""A resize that can be reverted: what the server had before is kept until it is confirmed.

Its root disk of then is a disk of the record that no guest sees. To revert, it takes the place of
the present one: nothing is copied back.
"""

import logging
from dataclasses import replace
from functools import partial

from millpond.disks.duplication import check_duplicate, duplicate
from millpond.errors import Conflict, Tool, Unsupported, VolumeExists
from millpond.hosts.host import Host
from millpond.libvirt.domains import ON
from millpond.model.callbacks import Progress, noop
from millpond.model.names import volume_name
from millpond.model.operation import ROOT
from millpond.model.server import SAVED, Disk, Server
from millpond.records import journal
from millpond.records.journal import Step, Verb, as_step
from millpond.records.records import ServerJournal, without_operation
from millpond.servers import steps
from millpond.servers.power import runs_on
from millpond.servers.resize import former_sizes, with_sizes
from millpond.servers.transition import bring_into_pools

LOG = logging.getLogger(__name__)

_SUFFIXES = ("", ".rebuilt", ".saved")
"""Of the names that a root disk may have: none is ever renamed."""


def save(host: Host, server: Server, progress: Progress = noop) -> Server:
    """Before it is resized; it is off."""
    with host.records.lock(server):
        current = steps.load_idle(host, server)
        steps.refuse_unsettled(current)
        _refuse_running(host, current, "a resize that can be reverted")
        steps.refuse_overlays(host, current)
        current = bring_into_pools(host, current)
        root = current.get_disk()
        if root.path:
            reason = "its root disk lies in Nova's legacy layout"
            hint = "take a snapshot instead"
            raise Unsupported("a resize that can be reverted", reason, hint)
        check_duplicate(host.pools.ensure(root.pool), root)
        saved = _plan(current, root)
        if host.disks.exists(saved):  # no record names it: it is somebody's
            raise VolumeExists(saved.pool, saved.volume)
        former, disks = former_sizes(current), (*current.disks, saved)
        planned = replace(current, resized_from=former, disks=disks)
        verb, notes = saving(host, progress), ServerJournal(host.records)
        kept = journal.run(verb, planned, notes, host.watch)
    LOG.info("kept the root disk of server %s as it was", server.name)
    return kept


def confirm(host: Host, server: Server) -> Server:
    """Also while it runs."""
    with host.records.lock(server):
        current = _load_resized(host, server)
        confirmed = journal.run(confirming(host), current, ServerJournal(host.records), host.watch)
    LOG.info("confirmed the resize of server %s", server.name)
    return confirmed


def revert(host: Host, server: Server) -> Server:
    """What was written to the root disk since then is lost."""
    with host.records.lock(server):
        current = _load_resized(host, server)
        _refuse_running(host, current, "reverting the resize")
        steps.refuse_overlays(host, current)
        reverted = journal.run(reverting(host), current, ServerJournal(host.records), host.watch)
    LOG.info("reverted the resize of server %s", server.name)
    return reverted


def saving(host: Host, progress: Progress = noop) -> Verb[Server]:
    return Verb(
        "resize save",
        (
            Step("claim", as_step(partial(steps.claim, host)), partial(_unclaim, host)),
            Step("copy", as_step(partial(_copy, host, progress)), partial(_delete_saved, host)),
            Step("record", as_step(partial(_write, host)), partial(_write_without, host)),
        ),
        finished=without_operation,
        undone=lambda server: without_operation(_without(server)),
    )


def confirming(host: Host) -> Verb[Server]:
    return Verb(
        "resize confirm",
        (
            Step("remove", as_step(partial(_delete_saved, host))),
            Step("release", as_step(partial(_claim_without, host))),
            Step("record", as_step(partial(_write_without, host))),
        ),
        finished=lambda server: without_operation(_without(server)),
        undone=without_operation,
        resumes=True,
    )


def reverting(host: Host) -> Verb[Server]:
    """The present disk goes when the domain has the other one; until then it is undone, unless
    libvirt has started the server on that one, after a boot."""
    return Verb(
        "resize revert",
        (
            Step("claim", as_step(partial(_claim_former, host)), partial(steps.unclaim, host)),
            Step("domain", partial(_define_reverted, host), partial(_define, host)),
            Step("remove", as_step(partial(_delete_root, host))),
            Step("release", as_step(partial(_claim_reverted, host))),
        ),
        finished=lambda server: without_operation(_reverted(server)),
        undone=without_operation,
        arrived=partial(_runs_on_saved, host),
        no_return="remove",
    )


def _load_resized(host: Host, server: Server) -> Server:
    current = steps.load_idle(host, server)
    if not current.resized_from:
        what = f"server {server.name!r} has no resize to confirm or revert"
        raise Conflict(what, f"'{Tool.SERVER} resize --revertable' begins one")
    return current


def _refuse_running(host: Host, server: Server, what: str) -> None:
    if host.domains.state(server.id) in ON:
        reason = f"server {server.name!r} runs, and writes to its root disk"
        raise Unsupported(what, reason, f"stop it first: {Tool.SERVER} stop {server.name}")


def _plan(server: Server, root: Disk) -> Disk:
    taken, name = {each.volume for each in server.disks}, volume_name(server.id, ROOT)
    volume = next(name + each for each in _SUFFIXES if name + each not in taken)
    return replace(root, role=SAVED, target="", volume=volume)


def _without(server: Server) -> Server:
    disks = tuple(each for each in server.disks if each.role != SAVED)
    return replace(server, resized_from=None, disks=disks)


def _reverted(server: Server) -> Server:
    saved, former = server.get_disk(SAVED), server.resized_from
    assert former
    disks = tuple(
        replace(saved, role=ROOT, target=each.target) if each.role == ROOT else each
        for each in _without(server).disks
    )
    return replace(with_sizes(former, server), disks=disks, resized_from=None)


def _claim_without(host: Host, server: Server) -> None:
    steps.claim(host, _without(server))


def _claim_reverted(host: Host, server: Server) -> None:
    steps.claim(host, _reverted(server))


def _claim_former(host: Host, server: Server) -> None:
    """With both disks, as long as they are there."""
    assert server.resized_from
    steps.claim(host, with_sizes(server.resized_from, server))


def _unclaim(host: Host, server: Server) -> None:
    steps.unclaim(host, _without(server))


def _copy(host: Host, progress: Progress, server: Server) -> None:
    """Asked again whether it runs: somebody may have started its domain."""
    _refuse_running(host, server, "a resize that can be reverted")
    root = server.get_disk()
    duplicate(host.pools.ensure(root.pool), root, server.get_disk(SAVED), progress)


def _delete_saved(host: Host, server: Server) -> None:
    host.disks.delete(server.get_disk(SAVED))


def _delete_root(host: Host, server: Server) -> None:
    host.disks.delete(server.get_disk(ROOT))


def _write(host: Host, server: Server) -> None:
    steps.write_metadata(host, without_operation(server))


def _write_without(host: Host, server: Server) -> None:
    steps.write_metadata(host, without_operation(_without(server)))


def _define_reverted(host: Host, server: Server) -> Server:
    """Asked again whether it runs, as when it is copied."""
    if not _runs_on_saved(host, server, "domain"):
        _refuse_running(host, server, "reverting the resize")
    defined = steps.define(host, _reverted(server))
    return replace(server, hardware=defined.hardware)


def _define(host: Host, server: Server) -> None:
    steps.define(host, server)


def _runs_on_saved(host: Host, server: Server, step: str) -> bool:
    target = server.get_disk(ROOT).target
    return step == "domain" and runs_on(host, server, target, server.get_disk(SAVED))
