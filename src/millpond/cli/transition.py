"""millpond transition …"""

from collections.abc import Sequence
from typing import Annotated

import typer

from millpond.cli.hosts import HostNames
from millpond.cli.output import as_json, complain, details
from millpond.errors import NeedsHostFiles
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.hosts.legacy import find_layout
from millpond.legacy.disk import LegacyDisk
from millpond.legacy.transition import LegacyStatus
from millpond.legacy.transition import status as find_status
from millpond.model.sizes import format_size

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def transition() -> None:
    """Find what lies in Nova's legacy layout."""


@app.command()
def status(
    ctx: typer.Context,
    host: HostNames = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List servers whose disks Nova laid out. It says what is in the way of each."""
    hosts = Deployment.load(ctx.obj.config_files).select(host)
    found = [each for host in hosts for each in _find_status(host, asked_for=bool(host))]
    if json:
        print(as_json(found))
        return
    for number, each in enumerate(found):
        if number:
            print()
        details(_lines(each))
    if not found:
        print("no server has disks in Nova's legacy layout")


def _find_status(host: Host, *, asked_for: bool) -> Sequence[LegacyStatus]:
    """A host where it cannot be told is passed over, unless somebody asked for it."""
    try:
        layout = find_layout(host)
    except NeedsHostFiles as error:
        if asked_for:
            raise
        complain(error)
        return ()
    return find_status(layout, host.records, host.domains, host.domain_records)


def _lines(server: LegacyStatus) -> list[tuple[str, str]]:
    kind = "Server" if server.adopted else "Domain"
    return [
        ("Id", server.id),
        (kind, server.name or "none of this UUID"),
        ("Layout", server.layout),
        *((f"Disk {each.role}", _line(each)) for each in server.disks),
        *(("In the way", each) for each in server.in_the_way),
    ]


def _line(disk: LegacyDisk) -> str:
    size = format_size(disk.size) if disk.size is not None else "of unknown size"
    line = f"{size} {disk.format or 'of unknown format'}: {disk.path}"
    return f"{line}, standing on {disk.base.volume} ({disk.base.format})" if disk.base else line
