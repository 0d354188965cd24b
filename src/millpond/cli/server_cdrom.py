"""millpond server cdrom …"""

from typing import Annotated

import typer

from millpond.cli.output import transfer
from millpond.cli.server import Json, Name, app, show_server
from millpond.hosts.deployment import Deployment
from millpond.model.names import printable
from millpond.servers import cdrom

drives = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(drives, name="cdrom", help="Insert and eject the media of CD-ROM drives.")


@drives.command()
def insert(
    ctx: typer.Context,
    server: Name,
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="Name or id of an ISO image.")],
    json: Json = False,
) -> None:
    """Insert an ISO image. A server that is off and has no CD-ROM drive gets one."""
    deployment = Deployment.load(ctx.obj.config_files)
    host, found = deployment.find(server)
    medium = deployment.images.get(image)
    with transfer(f"template of {printable(medium.name)}", lambda: medium.size) as progress:
        changed = cdrom.insert(host, found, medium, progress)
    if json:
        show_server(deployment, changed, json)
    else:
        print(f"inserted {printable(medium.name)} into {found.name}")


@drives.command()
def eject(
    ctx: typer.Context,
    server: Name,
    force: Annotated[
        bool, typer.Option("--force", help="Also from a drive that the guest has locked.")
    ] = False,
    json: Json = False,
) -> None:
    """Eject what is in the CD-ROM drive; the drive stays."""
    deployment = Deployment.load(ctx.obj.config_files)
    host, found = deployment.find(server)
    cdrom.eject(host, found, force=force)
    if json:
        show_server(deployment, deployment.server(found.id), json)
    elif found.cdrom and found.cdrom.image:
        print(f"ejected {printable(found.cdrom.image.name)} from {found.name}")
    else:
        print(f"nothing is in a CD-ROM drive of {found.name}")
