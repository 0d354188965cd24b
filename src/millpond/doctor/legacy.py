"""Disks in Nova's legacy layout: how many servers still have them (B23)."""

from collections.abc import Iterator

from millpond.doctor.finding import Finding, counted, ok, problem, some, warning
from millpond.errors import HostProblem, Tool
from millpond.hosts.host import Host
from millpond.hosts.legacy import look_at_layout, refuse_legacy_servers
from millpond.legacy.transition import status


def look(host: Host) -> Iterator[Finding]:
    images_type = host.settings.libvirt.selection.images_type
    if images_type.pools_only:
        try:
            refuse_legacy_servers(host)
            yield ok(f"images_type = {images_type}, and no server has legacy disks")
        except HostProblem as error:
            yield problem(str(error), error.advice)
        return
    layout = look_at_layout(host, host.pools.open)  # looking makes no pool
    found = status(layout, host.records, host.libvirtd, host.domain_records)
    if found:
        names = [f"{each.name or 'no domain'} ({each.id})" for each in found]
        yield warning(
            f"{counted(len(found), 'server')} with disks in Nova's legacy layout, which is "
            f"deprecated: {some(names)}",
            f"'{Tool.LEGACY}' shows them; '{Tool.TRANSITION}' moves them into the pools",
        )
    else:
        yield ok("no server has disks in Nova's legacy layout")
