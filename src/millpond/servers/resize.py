"""Give a server other vCPUs and memory, while it is off."""

import logging
from dataclasses import replace
from functools import partial

from millpond.errors import Tool, Unsupported
from millpond.hosts.host import Host
from millpond.libvirt.domains import ON
from millpond.model.operation import ResizeDetails
from millpond.model.server import Server
from millpond.records import journal
from millpond.records.journal import Step, Verb, as_step
from millpond.records.records import ServerJournal, without_operation
from millpond.servers import steps

LOG = logging.getLogger(__name__)


def resize(host: Host, server: Server, *, vcpus: int = 0, memory: int = 0) -> Server:
    """What is not said stays as it is."""
    with host.records.lock(server):
        current = steps.load_idle(host, server)
        wanted = _with(current, vcpus or current.flavor.vcpus, memory or current.flavor.memory)
        if wanted == current:
            return current
        _refuse_running(host, current)
        steps.check_size(host, wanted.flavor, wanted.hardware)
        details = ResizeDetails(vcpus=current.flavor.vcpus, memory=current.flavor.memory)
        notes = ServerJournal(host.records, details)
        resized = journal.run(resizing(host, details), wanted, notes, host.watch)
    LOG.info("resized server %s", server.name)
    return resized


def resizing(host: Host, details: ResizeDetails) -> Verb[Server]:
    """The record has the new sizes from the beginning; what they were is in the details."""
    before = partial(_with, vcpus=details.vcpus, memory=details.memory)
    return Verb(
        "resize",
        (
            Step(
                "claim",
                as_step(partial(steps.claim, host)),
                lambda server: _claim_as_before(host, before(server)),
            ),
            Step("domain", partial(steps.define, host), lambda each: _define(host, before(each))),
        ),
        finished=without_operation,
        undone=lambda each: without_operation(before(each)),
        resumes=True,
    )


def _with(server: Server, vcpus: int, memory: int) -> Server:
    return replace(server, flavor=replace(server.flavor, vcpus=vcpus, memory=memory))


def _claim_as_before(host: Host, server: Server) -> None:
    with steps.log_placement_errors(server):
        steps.claim(host, server)


def _define(host: Host, server: Server) -> None:
    steps.define(host, server)


def _refuse_running(host: Host, server: Server) -> None:
    if host.domains.state(server.id) in ON:
        raise Unsupported(
            f"other vCPUs or memory for server {server.name!r} while it runs",
            "its guest has what it was started with",
            f"stop it first: {Tool.SERVER} stop {server.name}",
        )
