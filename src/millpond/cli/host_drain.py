"""millpond host drain, disable and enable"""

import sys
from typing import Annotated, Any

import typer

from millpond.cli.host import Json, app
from millpond.cli.output import as_json, complain_of
from millpond.cli.server_migrate import describe_idle
from millpond.doctor.moves import find_copies
from millpond.errors import Conflict
from millpond.hosts import availability
from millpond.hosts.deployment import Deployment
from millpond.model.server import Server
from millpond.model.sizes import format_size
from millpond.servers.drain import NotMoved, plan_drain
from millpond.servers.drain import drain as move_away
from millpond.servers.migrate import Migrated, MigrateRequest, MoveDecision

HostName = Annotated[str, typer.Argument(metavar="HOST", help="As the configuration names it.")]


@app.command()
def drain(
    ctx: typer.Context,
    host: HostName,
    stop: Annotated[
        bool,
        typer.Option(
            "--stop",
            help="Stop servers that run, and start them again there. Default: move them live.",
        ),
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=1, help="Seconds that each guest has to power itself off.")
    ] = 60.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say where each server would go.")
    ] = False,
    json: Json = False,
) -> None:
    """Move all servers away from a host, which gets no new ones."""
    deployment = Deployment.load(ctx.obj.config_files)
    plain = MigrateRequest(stop=stop, patience=timeout)
    found: list[tuple[dict[str, Any], NotMoved | None]]
    if dry_run:
        planned = plan_drain(deployment, host, plain)
        found = [_tell(each, json, "would move", host) for each in planned]
    else:
        moved = move_away(deployment, host, lambda server: _note(server, plain))
        found = [_tell((each.server, each), json, "moved", host) for each in moved]
    if json:
        print(as_json([told for told, _ in found]))
    elif not dry_run:
        print(f"host {host} is disabled")
    failed = [left.error for _, left in found if left]
    raise typer.Exit(failed[0].exit_code if failed else 0)


@app.command()
def disable(
    ctx: typer.Context,
    host: HostName,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="For people.")] = "disabled",
    json: Json = False,
) -> None:
    """Give a host no new servers. Those that it has stay."""
    deployment = Deployment.load(ctx.obj.config_files)
    was = not availability.disable(deployment, host, reason)
    plain = f"host {host} was disabled already" if was else f"disabled host {host}"
    print(as_json({"host": host, "state": "disabled"}) if json else plain)


@app.command()
def enable(ctx: typer.Context, host: HostName, json: Json = False) -> None:
    """Give a host new servers again."""
    deployment = Deployment.load(ctx.obj.config_files)
    for left in find_copies(deployment.host(host)):
        raise Conflict(f"host {host!r} still has what was moved away: {left.what}", left.do)
    availability.enable(deployment, host)
    print(as_json({"host": host, "state": "enabled"}) if json else f"enabled host {host}")


def _note(server: Server, request: MigrateRequest) -> MigrateRequest:
    print(f"moving {server.name}", file=sys.stderr)
    return request


def _tell(
    found: tuple[Server, Migrated | MoveDecision | NotMoved], json: bool, verb: str, drained: str
) -> tuple[dict[str, Any], NotMoved | None]:
    server, each = found
    told = {"server": server.id, "name": server.name, "host": server.host, "error": ""}
    if isinstance(each, NotMoved):
        complain_of(server, drained, each.error)
        return {**told, "bytes": 0, "error": str(each.error)}, each
    if isinstance(each, Migrated):
        host, size, idle = each.server.host, each.moved, describe_idle(each)
    else:
        assert each.plan
        host, size, idle = each.plan.server.host, each.plan.size, {}
    if not json:
        parts = [format_size(size), *(f"{name} {seconds:.3f} s" for name, seconds in idle.items())]
        print(f"{verb} {server.name} to {host}, {', '.join(parts)}", flush=True)
    return {**told, "host": host, "bytes": size, **idle}, None
