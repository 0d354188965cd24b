"""millpond transition …"""

from collections.abc import Sequence
from typing import Annotated

import typer

from millpond.cli.complaint import complain
from millpond.cli.hosts import Hosts
from millpond.cli.output import as_json, details
from millpond.engine import Engine
from millpond.errors import NeedsHostFiles
from millpond.fleet import Fleet
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
    host: Hosts = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List servers whose disks Nova laid out, each with its disks and what is in the way."""
    engines = Fleet.load(ctx.obj.config_files).chosen(host)
    found = [each for engine in engines for each in _found(engine, asked_for=bool(host))]
    if json:
        print(as_json(found))
        return
    for number, each in enumerate(found):
        if number:
            print()
        details(_lines(each))
    if not found:
        print("no server has disks in Nova's legacy layout")


def _found(engine: Engine, *, asked_for: bool) -> Sequence[LegacyStatus]:
    """A host where it cannot be told is passed over, unless somebody asked for it."""
    try:
        layout = engine.legacy_layout()
    except NeedsHostFiles as error:
        if asked_for:
            raise
        complain(error)
        return ()
    return find_status(layout, engine.records, engine.domains)


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
