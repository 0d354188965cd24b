"""millpond transition …"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from millpond.cli.hosts import HostNames
from millpond.cli.output import as_json, complain, details, transfer
from millpond.cli.server import PATIENCE, Json, Name, Names, Timeout, Yes, chosen, label, tell
from millpond.errors import BadInput, Conflict, MillpondError, NeedsHostFiles, NotFound, Tool
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.hosts.legacy import find_layout
from millpond.legacy.disk import LegacyDisk
from millpond.legacy.transition import LegacyStatus
from millpond.legacy.transition import status as find_status
from millpond.model.server import Server
from millpond.model.sizes import format_size
from millpond.servers.drain import NotMoved
from millpond.servers.transition import (
    Moved,
    TransitRequest,
    give_back,
    plan_for,
    refresh_pools,
    transit,
)
from millpond.servers.transition_plan import bytes_to_copy, is_unfinished
from millpond.system.threads import each_of

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


_SOME = 4
"""That are named: the rest is in the status."""
_COMPLETES = f"its disks were being moved; '{Tool.TRANSITION} {{}}' completes that"
_NONE = "no server has disks in Nova's legacy layout"


@app.callback()
def transition() -> None:
    """Find what lies in Nova's legacy layout, and move it into the pools."""


@app.command()
def status(
    ctx: typer.Context,
    host: HostNames = None,
    json: Json = False,
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
        print(_NONE)


@app.command()
def run(
    ctx: typer.Context,
    servers: Names = None,
    all_: Annotated[bool, typer.Option("--all", help="Every server that has such disks.")] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop servers that run, and start them again.")
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Move servers that run without stopping them.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --stop: power off at once.")
    ] = False,
    timeout: Timeout = PATIENCE,
    parallel: Annotated[
        int, typer.Option(metavar="N", min=1, max=16, help="How many at a time.")
    ] = 2,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
    json: Json = False,
) -> None:
    """Move disks out of Nova's legacy layout into the pools. On one file system no byte is
    copied."""
    if live and stop:
        raise BadInput("--live and --stop exclude each other", "leave one out")
    request = TransitRequest(stop=stop, live=live, patience=0 if force else timeout)
    deployment = Deployment.load(ctx.obj.config_files)
    found = _choose(deployment, servers, all_)
    todo = sorted(filter(is_unfinished, found), key=lambda each: each.name)

    def attempt(server: Server) -> Moved | NotMoved:
        host = deployment.host_of(server)
        try:
            if not dry_run:
                return transit(host, server, request, tell, progress)
            planned = plan_for(host, server, request)
            return Moved(
                server=server, disks=len(planned.here), copied=bytes_to_copy(host, planned)
            )
        except MillpondError as error:
            return NotMoved(server=server, error=error)

    verb = "would move" if dry_run else "moved"
    with transfer("copying disks", lambda: None) as progress:
        done = [_tell(each, verb, json) for each in each_of(todo, attempt, parallel)]
    if not dry_run:
        _refresh(deployment, done)
    novas = _find_novas(deployment) if all_ else []
    if json:
        print(as_json([_plain(each) for each in done]))
    else:
        _tell_others([each for each in found if each not in todo], all_, bool(todo or novas))
    errors = [each.error for each in done if isinstance(each, NotMoved)]
    if novas:
        errors.append(_not_adopted([each.id for each in novas]))
        complain(errors[-1])
    raise typer.Exit(errors[0].exit_code if errors else 0)


def _refresh(deployment: Deployment, done: Sequence[Moved | NotMoved]) -> None:
    moved = [each.server for each in done if isinstance(each, Moved)]
    for host in deployment.select(None):
        refresh_pools(host, [each for each in moved if each.host == host.name])


def _tell_others(servers: Sequence[Server], all_: bool, has_some: bool) -> None:
    """Of those that were named and have nothing to be moved; of all, if there are none."""
    if all_ and not has_some:
        print(_NONE)
    for each in () if all_ else servers:
        print(f"{label(each)} has no disks in Nova's legacy layout")


@app.command()
def revert(ctx: typer.Context, server: Name, yes: Yes = False, json: Json = False) -> None:
    """Give a server back to Nova. Its disks go where Nova's own driver finds them, and Millpond
    forgets it. It must be off. On a terminal it asks first."""
    deployment = Deployment.load(ctx.obj.config_files)
    (found,) = _choose(deployment, [server])
    host = deployment.host_of(found)
    if not yes and sys.stdin.isatty():
        question = f"Millpond will know nothing of {label(found)} any more. Give it back to Nova?"
        typer.confirm(question, abort=True, err=True)
    done = give_back(host, found)
    if json:
        print(as_json(_plain(done)))
    else:
        print(f"gave {label(found)} back to Nova: its disks are in {_directory(host, found)}")


def _choose(
    deployment: Deployment, names: Sequence[str] | None, all_: bool = False
) -> list[Server]:
    """Of one that is still Nova's the reason is said."""
    try:
        return chosen(deployment, names, all_)
    except NotFound as error:
        novas = _find_novas(deployment)
        if named := [each.id for each in novas if {each.id, each.name} & {*(names or ())}]:
            raise _not_adopted(named) from error
        raise


def _find_novas(deployment: Deployment) -> list[LegacyStatus]:
    found = (each for host in deployment.select(None) for each in _find_status(host))
    return [each for each in found if not each.adopted]


def _not_adopted(ids: Sequence[str]) -> Conflict:
    which = f"server {ids[0]} is" if len(ids) == 1 else f"{len(ids)} servers are"
    some = "" if len(ids) == 1 else f": {', '.join(ids[:_SOME])}{', …' if ids[_SOME:] else ''}"
    advised = f"'{Tool.SERVER} adopt --all' adopts what can be, '{Tool.LEGACY}' says what cannot"
    return Conflict(f"{which} Nova's and not adopted{some}", advised)


def _directory(host: Host, server: Server) -> Path:
    return host.shared.settings.instances_path / server.id


def _tell(found: Moved | NotMoved, verb: str, json: bool) -> Moved | NotMoved:
    if isinstance(found, NotMoved):
        print(f"{found.server.name} stays in Nova's legacy layout:", file=sys.stderr)
        complain(found.error)
    elif not json:
        copied = format_size(found.copied)
        disks = f"{found.disks} disk{'s' if found.disks != 1 else ''}"
        print(f"{verb} {label(found.server)}: {disks}, {copied} copied", flush=True)
    return found


def _plain(found: Moved | NotMoved) -> dict[str, Any]:
    plain: dict[str, Any] = {"server": found.server.id, "name": found.server.name}
    if isinstance(found, NotMoved):
        return {**plain, "disks": 0, "copied": 0, "error": str(found.error)}
    plain |= {"disks": found.disks, "copied": found.copied, "error": ""}
    return {**plain, **({"pause": round(found.pause, 3)} if found.pause else {})}


def _find_status(host: Host, *, asked_for: bool = False) -> Sequence[LegacyStatus]:
    """A host where it cannot be told is passed over, unless somebody asked for it."""
    try:
        layout = find_layout(host)
    except NeedsHostFiles as error:
        if asked_for:
            raise
        complain(error)
        return ()
    return find_status(layout, host.records, host.libvirtd, host.domain_records)


def _lines(server: LegacyStatus) -> list[tuple[str, str]]:
    kind = "Server" if server.adopted else "Domain"
    return [
        ("Id", server.id),
        (kind, server.name or "none of this UUID"),
        ("Layout", server.layout),
        *((f"Disk {each.role}", _line(each)) for each in server.disks),
        *(("In the way", each) for each in server.in_the_way),
        *([("Interrupted", _COMPLETES.format(server.name))] if server.interrupted else []),
    ]


def _line(disk: LegacyDisk) -> str:
    size = format_size(disk.size) if disk.size is not None else "of unknown size"
    line = f"{size} {disk.format or 'of unknown format'}: {disk.path}"
    return f"{line}, backed by {disk.base.volume} ({disk.base.format})" if disk.base else line
