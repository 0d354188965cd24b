"""millpond server adopt: apart from its siblings, because it knows Nova's layout."""

import sys
from typing import Annotated

import typer

from millpond.cli.hosts import HostName
from millpond.cli.server import Json, app, show_server
from millpond.errors import BadOption
from millpond.hosts.deployment import Deployment
from millpond.hosts.legacy import find_layout
from millpond.model.names import ServerId
from millpond.servers.adopt import adopt as take_over
from millpond.servers.adopt import check_adoptable

_QUESTION = "Is it certain that no nova-compute works on this server any more?"


@app.command()
def adopt(
    ctx: typer.Context,
    server: Annotated[str, typer.Argument(metavar="ID", help="The server's id in Nova.")],
    yes: Annotated[bool, typer.Option("--yes", help="Nova does not work on it any more.")] = False,
    host: HostName = "",
    json: Json = False,
) -> None:
    """Take over a server of Nova's. Its disks stay where they are, and it runs on."""
    deployment = Deployment.load(ctx.obj.config_files)
    there = deployment.host(host)
    layout = find_layout(there)
    check_adoptable(there, layout, ServerId(server))
    if not yes:
        _ask()
    adopted = take_over(there, layout, ServerId(server))
    show_server(deployment, adopted, json)


def _ask() -> None:
    """Two that work on the same disks would destroy them."""
    if not sys.stdin.isatty():
        reason = "nobody is here to ask whether Nova still works on the server"
        raise BadOption("server adopt", reason, "add --yes if it does not")
    typer.confirm(_QUESTION, abort=True, err=True)
