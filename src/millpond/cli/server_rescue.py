"""millpond server rescue, unrescue"""

from typing import Annotated

import typer

from millpond.cli.output import transfer
from millpond.cli.server import PATIENCE, Json, Name, Timeout, app, label, show_server, tell
from millpond.hosts.deployment import Deployment
from millpond.servers import across_hosts
from millpond.servers import rescue as rescuing
from millpond.servers.rescue import Switching

Force = Annotated[bool, typer.Option("--force", help="Power off a running server at once.")]


@app.command()
def rescue(
    ctx: typer.Context,
    server: Name,
    image: Annotated[
        str, typer.Option(help="Name or id of the image to boot; default: the server's own.")
    ] = "",
    force: Force = False,
    timeout: Timeout = PATIENCE,
    json: Json = False,
) -> None:
    """Boot a server from another image, to repair it. Its root disk is one disk more."""
    deployment = Deployment.load(ctx.obj.config_files)
    host, found = deployment.find(server)
    source = deployment.images.get(image or found.image.id)
    across_hosts.check_image(deployment, found, source)
    with transfer(f"template of {source.name}", lambda: source.size) as progress:
        told = Switching(patience=0 if force else timeout, tell=tell, progress=progress)
        rescued = rescuing.rescue(host, found, source, told)
    if json:
        show_server(deployment, rescued, json)
    else:
        root = rescued.get_disk()
        print(f"rescued {label(rescued)} by {source.name}; its root disk is {root.target}")


@app.command()
def unrescue(
    ctx: typer.Context,
    server: Name,
    force: Force = False,
    timeout: Timeout = PATIENCE,
    json: Json = False,
) -> None:
    """Boot a rescued server from its own root disk again. The rescue disk is removed."""
    deployment = Deployment.load(ctx.obj.config_files)
    host, found = deployment.find(server)
    told = Switching(patience=0 if force else timeout, tell=tell)
    restored = rescuing.unrescue(host, found, told)
    if json:
        show_server(deployment, restored, json)
    else:
        print(f"unrescued {label(restored)}")
