"""millpond server disk …"""

import sys
from typing import Annotated

import typer

from millpond.cli.output import as_json, complain, table
from millpond.cli.server import Json, Name, Yes, app, show_server
from millpond.errors import BadOption
from millpond.hosts.deployment import Deployment
from millpond.model.server import Disk, Server
from millpond.model.sizes import format_size, parse_size
from millpond.records import codec
from millpond.servers import data_disks, grow

disks = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(disks, name="disk", help="List, add, attach, detach, grow and remove disks.")

Role = Annotated[
    str, typer.Argument(metavar="DISK", help="As 'disk list' names it, or its target.")
]


@disks.command("list")
def list_disks(
    ctx: typer.Context,
    servers: Annotated[
        list[str] | None,
        typer.Argument(metavar="SERVER...", help="Names or ids; default: all servers."),
    ] = None,
    detached: Annotated[
        bool, typer.Option("--detached", help="Only disks that no guest has.")
    ] = False,
    json: Json = False,
) -> None:
    """List disks. A guest finds each by its serial."""
    deployment = Deployment.load(ctx.obj.config_files)
    listed, damaged = deployment.records.readable()
    if servers:
        listed = [deployment.server(each, shortened=True) for each in servers]
    else:
        for error in damaged:
            complain(error)
    found = [
        (server, disk)
        for server in listed
        for disk in server.disks
        if disk.content.is_seen_by_the_guest and not (detached and disk.is_attached)
    ]
    if json:
        print(as_json([_describe(server, disk) for server, disk in found]))
        return
    table(
        ("Server", "Disk", "Target", "Serial", "Size", "Backend", "Volume"),
        [_row(server, disk) for server, disk in found],
    )


def _row(server: Server, disk: Disk) -> tuple[str, ...]:
    target = disk.target or "detached"
    size = format_size(disk.size)
    return (server.name, disk.role, target, disk.serial, size, disk.backend, disk.location)


def _describe(server: Server, disk: Disk) -> dict[str, object]:
    attached = {"attached": disk.is_attached, "serial": disk.serial}
    return {"server": server.name, "server_id": server.id, **attached, **codec.plain(disk)}


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
        raise BadOption("--size", "must be larger than 0", "write such as 10G")
    made = data_disks.add(host, found, wanted)
    print(as_json(made) if json else f"{made.role} ({made.target})")


@disks.command("detach")
def detach_disk(ctx: typer.Context, server: Name, disk: Role, json: Json = False) -> None:
    """Take a data disk from the guest. It is kept, with what is on it, for 'disk attach'."""
    deployment = Deployment.load(ctx.obj.config_files)
    host, found = deployment.find(server)
    taken = data_disks.detach(host, found, disk)
    if json:
        print(as_json(deployment.server(found.id).get_disk(taken.role)))
    else:
        print(f"detached {taken.role} from {found.name}")


@disks.command("attach")
def attach_disk(ctx: typer.Context, server: Name, disk: Role, json: Json = False) -> None:
    """Give a guest back a disk that was detached. The server may run."""
    host, found = Deployment.load(ctx.obj.config_files).find(server)
    given = data_disks.attach(host, found, disk)
    print(as_json(given) if json else f"{given.role} ({given.target})")


@disks.command("remove")
def remove_disk(
    ctx: typer.Context, server: Name, disk: Role, yes: Yes = False, json: Json = False
) -> None:
    """Remove a data disk and what is on it, also while the server runs. On a terminal it asks."""
    deployment = Deployment.load(ctx.obj.config_files)
    host, found = deployment.find(server)
    lost = found.get_disk(disk)
    if not yes and sys.stdin.isatty():
        words = f"{lost.role} of {found.name}, {format_size(lost.size)}, with what is on it"
        typer.confirm(f"Remove {words}?", abort=True, err=True)
    # By its role: another one may have its target by now.
    removed = data_disks.remove(host, found, lost.role)
    if json:
        show_server(deployment, deployment.server(found.id), json)
    else:
        print(f"removed {removed.role} from {found.name}")


@disks.command("grow")
def grow_disk(
    ctx: typer.Context,
    server: Name,
    disk: Role,
    size: Annotated[str, typer.Option(help="The new size, such as 20G.")],
    json: Json = False,
) -> None:
    """Make a disk larger. The server may run, unless the disk is a ploop one."""
    host, found = Deployment.load(ctx.obj.config_files).find(server)
    grown = grow.grow(host, found, disk, parse_size(size))
    if json:
        print(as_json(grown.get_disk(disk)))
