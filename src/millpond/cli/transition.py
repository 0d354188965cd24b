"""millpond transition …"""

from typing import Annotated

import typer

from millpond.backends.legacy.disk import LegacyDisk
from millpond.cli.hosts import Hosts
from millpond.cli.output import as_json, details
from millpond.compute.transition import LegacyStatus
from millpond.compute.transition import status as find_status
from millpond.fleet import Fleet
from millpond.model.sizes import format_size

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def transition() -> None:
    """Find what lies in Nova's legacy layout."""


@app.command()
def status(
    ctx: typer.Context,
    host: Hosts = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List servers whose disks Nova laid out, each with its disks and what is in the way."""
    found = [
        each
        for engine in Fleet.load(ctx.obj.config_files).chosen(host)
        for each in find_status(
            engine.nova_layout(engine.refreshed_pool), engine.records, engine.domains
        )
    ]
    if json:
        print(as_json(found))
        return
    for number, each in enumerate(found):
        if number:
            print()
        details(_lines(each))
    if not found:
        print("no server has disks in Nova's legacy layout")


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
