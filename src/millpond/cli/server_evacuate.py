"""millpond server evacuate"""

from typing import Annotated, Any

import typer

from millpond.cli.hosts import Destination
from millpond.cli.output import as_json, complain_of
from millpond.cli.server import Json, Names, app, chosen, label
from millpond.errors import BadInput
from millpond.hosts.deployment import Deployment
from millpond.model.server import Server
from millpond.servers.evacuate import EvacuateRequest, NotEvacuated, decide, find_servers
from millpond.servers.evacuate import evacuate as save


@app.command()
def evacuate(
    ctx: typer.Context,
    servers: Names = None,
    from_: Annotated[
        str,
        typer.Option("--from", metavar="HOST", help="The host that is dead."),
    ] = "",
    all_: Annotated[bool, typer.Option("--all", help="Every server of that host.")] = False,
    host: Destination = "",
    fenced: Annotated[
        bool,
        typer.Option("--fenced", help="The host is off, or cut off from its storage: I know it."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say where each would go, and change nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Bring servers of a dead host to others that share their disks."""
    if not from_:
        raise BadInput("no host is named", "say which one is dead: --from HOST")
    deployment = Deployment.load(ctx.obj.config_files)
    of_host = find_servers(deployment, from_)
    found = of_host if all_ and not servers else chosen(deployment, servers, all_)
    request = EvacuateRequest(source=from_, host=host, fenced=fenced)
    done = (decide if dry_run else save)(deployment, found, request)
    told, status = [], 0
    for server, each in zip(found, done, strict=True):
        told.append(_describe(server, each))
        if isinstance(each, NotEvacuated):
            complain_of(each.server, from_, each.error)
            status = status or each.error.exit_code
        elif not json:
            verb = "would evacuate" if dry_run else "evacuated"
            print(f"{verb} {label(server)} to {told[-1]['host']}")
    if json:
        print(as_json(told))
    elif not dry_run:
        print(f"host {from_} is disabled")
    raise typer.Exit(status)


def _describe(server: Server, each: Server | str | NotEvacuated) -> dict[str, Any]:
    found = {"server": server.id, "name": server.name, "host": server.host, "error": ""}
    if isinstance(each, NotEvacuated):
        return {**found, "host": each.server.host, "error": str(each.error)}
    return {**found, "host": each if isinstance(each, str) else each.host}
