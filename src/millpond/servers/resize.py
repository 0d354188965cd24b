"""Give a server other vCPUs and memory, while it is off, or as far as its guest can while it
runs."""

import logging
from dataclasses import dataclass, replace
from functools import partial

from millpond.errors import Tool, Unsupported
from millpond.hosts.host import Host
from millpond.libvirt import live_sizes
from millpond.libvirt.domains import ON
from millpond.model.operation import FormerSizes, ResizeDetails
from millpond.model.server import Flavor, Server
from millpond.model.sizes import KiB, format_size
from millpond.records import journal
from millpond.records.journal import Step, Verb, as_step
from millpond.records.records import ServerJournal, without_operation
from millpond.servers import steps
from millpond.servers.transition import bring_into_pools

LOG = logging.getLogger(__name__)

_PATIENCE = 20.0
"""Seconds that a guest has to take or to give back what it is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What is not said stays as it is."""

    vcpus: int = 0
    memory: int = 0
    flavor: str = ""


def resize(host: Host, server: Server, sizes: Sizes) -> Server:
    with host.records.lock(server):
        current = steps.load_idle(host, server)
        wanted = replace(current, flavor=_with(current.flavor, sizes))
        if wanted == current:
            return current
        live = check_resize(host, current, sizes)
        current = bring_into_pools(host, current)
        wanted = replace(current, flavor=wanted.flavor)
        before = former_sizes(current)
        details = ResizeDetails(
            vcpus=before.vcpus, memory=before.memory, flavor=before.flavor, live=live
        )
        notes = ServerJournal(host.records, details)
        resized = journal.run(resizing(host, details), wanted, notes, host.watch)
    LOG.info("resized server %s", server.name)
    return resized


def check_resize(host: Host, server: Server, sizes: Sizes) -> bool:
    """Whether it is done while it runs. Raises what makes it impossible; changes nothing."""
    wanted = _with(server.flavor, sizes)
    steps.check_size(host, wanted, server.hardware)
    steps.refuse_overlays(host, server)
    live = host.domains.state(server.id) in ON
    if live and wanted != server.flavor:
        _check_live(host, server, wanted)
    return live


def _with(flavor: Flavor, sizes: Sizes) -> Flavor:
    return replace(
        flavor,
        vcpus=sizes.vcpus or flavor.vcpus,
        memory=sizes.memory or flavor.memory,
        name=sizes.flavor or flavor.name,
    )


def former_sizes(server: Server) -> FormerSizes:
    flavor = server.flavor
    return FormerSizes(vcpus=flavor.vcpus, memory=flavor.memory, flavor=flavor.name)


def with_sizes(former: FormerSizes, server: Server) -> Server:
    flavor = replace(server.flavor, vcpus=former.vcpus, memory=former.memory, name=former.flavor)
    return replace(server, flavor=flavor)


def resizing(host: Host, details: ResizeDetails) -> Verb[Server]:
    """The record has the new sizes from the beginning; what they were is in the details. Of a
    guest that runs nobody knows whether it follows: left in the middle, that is undone, unless it
    has its vCPUs already."""
    before = partial(with_sizes, details)
    live = Step(
        "live",
        as_step(partial(_set_live, host, details)),
        partial(_set_back, host, details),
    )
    return Verb(
        "resize",
        (
            Step(
                "claim",
                as_step(partial(steps.claim, host)),
                lambda server: steps.unclaim(host, before(server)),
            ),
            *((live,) if details.live else ()),
            Step("domain", partial(steps.define, host), lambda each: _define(host, before(each))),
        ),
        finished=without_operation,
        undone=lambda each: without_operation(before(each)),
        resumes=not details.live,
        arrived=partial(_has_arrived, host, details),
    )


def _define(host: Host, server: Server) -> None:
    steps.define(host, server)


def _check_live(host: Host, server: Server, wanted: Flavor) -> None:
    """vCPUs only come while it runs: to take one away, QEMU waits for a guest to let go of it, and
    nothing says whether it ever does."""
    state, running = host.domains.state(server.id), host.domains.description(server.id)
    if state != "running" or running is None:
        raise _refusal(server, f"it is {state}, and its guest cannot follow")
    if wanted.vcpus < server.flavor.vcpus:
        raise _refusal(server, "its guest keeps the vCPUs that it has")
    memory = running.memory * KiB  # as libvirt writes it
    if wanted.vcpus > running.vcpus or wanted.memory > memory:
        most = f"{running.vcpus} vCPUs and {format_size(memory)} of memory"
        room = "; 'server set' with --max-vcpus and --max-memory makes room for the next time"
        raise _refusal(server, f"it was started with {most} at the most", room)
    if wanted.memory != server.flavor.memory and running.memballoon == "none":
        raise _refusal(server, "its domain has no memory balloon")


def _set_live(host: Host, details: ResizeDetails, server: Server) -> None:
    """Memory first: a guest may not follow. One that has gone off meanwhile has both when it is
    started."""
    if host.domains.state(server.id) not in ON:
        return
    wanted = server.flavor
    if wanted.memory != details.memory and not _set_memory(host, server, wanted.memory, _PATIENCE):
        raise _refusal(server, f"its guest has not followed the balloon within {_PATIENCE:g} s")
    if live_sizes.get_vcpus(host.libvirtd, server.id) < wanted.vcpus:
        live_sizes.set_vcpus(host.libvirtd, server.id, wanted.vcpus)


def _set_back(host: Host, details: ResizeDetails, server: Server) -> None:
    """But for vCPUs, which its guest keeps until it is stopped."""
    if host.domains.state(server.id) in ON and server.flavor.memory != details.memory:
        _set_memory(host, server, details.memory, patience=0)


def _set_memory(host: Host, server: Server, size: int, patience: float) -> bool:
    return live_sizes.set_memory(host.libvirtd, server.id, size, patience)


def _has_arrived(host: Host, details: ResizeDetails, server: Server, step: str) -> bool:
    """Its guest has been given its vCPUs already: they are the last thing that it is given."""
    wanted = server.flavor.vcpus
    if step != "live" or details.vcpus == wanted or host.domains.state(server.id) not in ON:
        return step == "domain"
    return live_sizes.get_vcpus(host.libvirtd, server.id) >= wanted


def _refusal(server: Server, reason: str, besides: str = "") -> Unsupported:
    what = f"other vCPUs or memory for server {server.name!r} while it runs"
    return Unsupported(what, reason, f"stop it first: {Tool.SERVER} stop {server.name}{besides}")
