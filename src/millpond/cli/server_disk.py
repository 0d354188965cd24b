"""millpond server disk …"""

from typing import Annotated

import typer

from millpond.cli.output import as_json
from millpond.cli.server import Json, Name, app, show_server
from millpond.errors import BadOption
from millpond.hosts.deployment import Deployment
from millpond.model.sizes import parse_size
from millpond.servers import data_disks, grow

disks = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(disks, name="disk", help="Add, remove and grow the disks of a server.")

Role = Annotated[str, typer.Argument(metavar="DISK", help="As 'server show' names it.")]


@disks.command("add")
def add_disk(
    ctx: typer.Context,
    server: Name,
    size: Annotated[str, typer.Option(help="Such as 10G.")],
    json: Json = False,
) -> None:
    """Add an empty disk, also while the server runs."""
    host, found = Deployment.load(ctx.obj.config_files).find(server)
    if (wanted := parse_size(size)) == 0:
        raise BadOption("--size", "a disk needs some", "write such as 10G")
    made = data_disks.add(host, found, wanted)
    print(as_json(made) if json else f"{made.role} ({made.target})")


@disks.command("remove")
def remove_disk(ctx: typer.Context, server: Name, disk: Role, json: Json = False) -> None:
    """Remove a data disk and what is on it, also while the server runs."""
    deployment = Deployment.load(ctx.obj.config_files)
    host, found = deployment.find(server)
    data_disks.remove(host, found, disk)
    if json:
        show_server(deployment, deployment.server(found.id), json)


@disks.command("grow")
def grow_disk(
    ctx: typer.Context,
    server: Name,
    disk: Role,
    size: Annotated[str, typer.Option(help="The new size, such as 20G.")],
    json: Json = False,
) -> None:
    """Make a disk larger, also while the server runs (but for ploop disks)."""
    host, found = Deployment.load(ctx.obj.config_files).find(server)
    grown = grow.grow(host, found, disk, parse_size(size))
    if json:
        print(as_json(grown.get_disk(disk)))
