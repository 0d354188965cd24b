"""Give a server another name, while it is off: libvirt renames no domain that runs."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from millpond.errors import Tool, Unsupported
from millpond.hosts.host import Host
from millpond.libvirt.domains import ON
from millpond.model.names import check_name
from millpond.model.operation import RenameDetails
from millpond.model.server import Firmware, Server
from millpond.records import journal
from millpond.records.journal import Step, Verb
from millpond.records.records import ServerJournal, without_operation
from millpond.servers import steps

LOG = logging.getLogger(__name__)


def rename(host: Host, server: Server, name: str) -> Server:
    """Volumes and logs are named by its id, and stay as they are."""
    name = check_name("a server", name)
    with host.records.lock(server):
        current = steps.load_idle(host, server)
        if current.name == name:
            return current
        _refuse_own_variables(current)
        _refuse_running(host, current)
        details = RenameDetails(before=current.name)
        renamed = replace(current, name=name)
        verb, notes = renaming(host, details), ServerJournal(host.records, details)
        made = journal.run(verb, renamed, notes, host.watch, _taking_its_name(host, renamed))
    LOG.info("renamed server %s (%s) to %s", current.name, server.id, name)
    return made


def renaming(host: Host, details: RenameDetails) -> Verb[Server]:
    """The record has the new name from the beginning, so that nobody else takes it."""
    return Verb(
        "rename",
        (Step("domain", partial(_define, host), partial(_define_as_before, host, details)),),
        finished=without_operation,
        undone=lambda each: without_operation(replace(each, name=details.before)),
        resumes=True,
    )


@contextmanager
def _taking_its_name(host: Host, server: Server) -> Iterator[None]:
    """Its record is written before another can ask for the name."""
    with host.records.lock_name(server.name):
        steps.refuse_taken_name(host, server)
        yield


def _define(host: Host, server: Server) -> Server:
    _refuse_running(host, server)
    return steps.define(host, server)


def _define_as_before(host: Host, details: RenameDetails, server: Server) -> None:
    _define(host, replace(server, name=details.before))


def _refuse_own_variables(server: Server) -> None:
    """libvirt names the file of its variables by the domain, and renames the domain without it: it
    would be the next one's of the old name."""
    if server.hardware.firmware is Firmware.UEFI and not server.keeps_variables:
        raise Unsupported(
            f"renaming server {server.name!r}, whose UEFI variables are in no pool",
            "libvirt would not keep what its firmware has written down",
            f"describe it instead: {Tool.SERVER} set {server.name} --description TEXT",
        )


def _refuse_running(host: Host, server: Server) -> None:
    if host.domains.state(server.id) in ON:
        raise Unsupported(
            f"renaming server {server.name!r} while it runs",
            "libvirt renames only a domain that is off",
            f"stop it first: {Tool.SERVER} stop {server.name}",
        )
