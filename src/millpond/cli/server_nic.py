"""millpond server nic …"""

from typing import Annotated

import typer

from millpond.cli.output import as_json, table
from millpond.cli.server import Json, Name, Shown, app, describe_nics, show_server
from millpond.errors import BadOption
from millpond.hosts.deployment import Deployment
from millpond.model.network_option import HELP, parse_network
from millpond.servers import nics

commands = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(commands, name="nic", help="List, add and remove the NICs of a server.")


@commands.command("list")
def list_(ctx: typer.Context, server: Shown, json: Json = False) -> None:
    """List the NICs of a server."""
    deployment = Deployment.load(ctx.obj.config_files)
    found = describe_nics(deployment, deployment.server(server, shortened=True))
    if json:
        print(as_json(found))
        return
    rows = [
        (each["mac"], each["source"] or each["kind"], ", ".join(each["addresses"]))
        for each in found
    ]
    table(("MAC", "Network", "Address"), rows)


@commands.command("add")
def add_nic(
    ctx: typer.Context,
    server: Name,
    network: Annotated[str, typer.Option(help=HELP.removesuffix("; repeatable.") + ".")],
    json: Json = False,
) -> None:
    """Add a NIC, also while the server runs."""
    host, found = Deployment.load(ctx.obj.config_files).find(server)
    wanted = parse_network(network)
    if wanted is None:
        raise BadOption("--network", "'none' is no NIC", "name a network")
    made = nics.add(host, found, wanted)
    print(as_json(made) if json else made.mac)


@commands.command("remove")
def remove_nic(
    ctx: typer.Context,
    server: Name,
    mac: Annotated[str, typer.Argument(metavar="MAC", help="As 'server show' says it.")],
    json: Json = False,
) -> None:
    """Remove a NIC, also while the server runs."""
    deployment = Deployment.load(ctx.obj.config_files)
    host, found = deployment.find(server)
    nics.remove(host, found, mac)
    if json:
        show_server(deployment, deployment.server(found.id), json)
