"""millpond server adopt: apart from its siblings, because it knows Nova's layout."""

import sys
from typing import Annotated

import typer

from millpond.cli.hosts import HostName
from millpond.cli.output import as_json
from millpond.cli.server import Json, app, label, show_server
from millpond.cli.several import try_each
from millpond.errors import BadInput, BadOption
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.hosts.legacy import find_layout
from millpond.legacy.layout import NovaLayout
from millpond.legacy.transition import status
from millpond.model.names import ServerId
from millpond.servers.adopt import adopt as take_over
from millpond.servers.adopt import check_adoptable
from millpond.servers.steps import refuse_foreign_servers

_QUESTION = "Is it certain that no nova-compute works on this host any more?"


@app.command()
def adopt(
    ctx: typer.Context,
    servers: Annotated[
        list[str] | None, typer.Argument(metavar="ID...", help="The servers' ids in Nova.")
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Every server; what is in the way of one is said.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Nova does not work on them any more.")
    ] = False,
    host: HostName = "",
    json: Json = False,
) -> None:
    """Adopt Nova instances. They run on; their disks stay until they are next started."""
    if bool(servers) == all_:
        said = "--all needs no ids" if servers else "no server is named"
        raise BadInput(said, "name servers by their ids in Nova, or say --all")
    deployment = Deployment.load(ctx.obj.config_files)
    there = deployment.host(host)
    layout = find_layout(there)
    refuse_foreign_servers(there)
    ids = _find_all(there, layout) if all_ else [ServerId(each) for each in servers or ()]
    if len(ids) == 1:
        check_adoptable(there, layout, ids[0])
    if ids and not yes:
        _ask()
    if not ids and not json:
        print("no server of Nova's is left to be adopted")
    adopted, failed = try_each(ids, lambda each: take_over(there, layout, each))
    if len(ids) == 1 and not all_:
        show_server(deployment, adopted[0], json)
    elif json:
        print(as_json([{"id": each.id, "name": each.name} for each in adopted]))
    else:
        for each in adopted:
            print(f"adopted {label(each)}")
    raise typer.Exit(failed)


def _find_all(host: Host, layout: NovaLayout) -> list[ServerId]:
    found = status(layout, host.records, host.libvirtd, host.domain_records)
    novas = (each for each in found if not each.adopted)
    return [ServerId(each.id) for each in sorted(novas, key=lambda each: each.name)]


def _ask() -> None:
    """Two that work on the same disks would destroy them."""
    if not sys.stdin.isatty():
        reason = "nobody is here to ask whether Nova still works on the server"
        raise BadOption("server adopt", reason, "add --yes if it does not")
    typer.confirm(_QUESTION, abort=True, err=True)
