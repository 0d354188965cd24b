"""millpond server rebuild"""

import sys
from typing import Annotated

import typer

from millpond.cli.output import transfer
from millpond.cli.server import (
    PATIENCE,
    Json,
    Name,
    Timeout,
    Yes,
    app,
    label,
    show_server,
    tell,
)
from millpond.hosts.deployment import Deployment
from millpond.servers import across_hosts
from millpond.servers.rebuild import rebuild as rebuild_server


@app.command()
def rebuild(
    ctx: typer.Context,
    server: Name,
    image: Annotated[
        str, typer.Option(help="Name or id of the image; default: the one it was made from.")
    ] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Power off a running server at once.")
    ] = False,
    timeout: Timeout = PATIENCE,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Make a server's root disk again from an image. What is on it is lost; other disks stay. One
    that runs is stopped, and started again. On a terminal it asks first."""
    deployment = Deployment.load(ctx.obj.config_files)
    host, found = deployment.find(server)
    source = deployment.images.get(image or found.image.id)
    across_hosts.check_image(deployment, found, source)
    if not yes and sys.stdin.isatty():
        question = f"The root disk of {label(found)} is made again from {source.name}. Rebuild?"
        typer.confirm(question, abort=True, err=True)
    with transfer(f"template of {source.name}", lambda: source.size) as progress:
        patience = 0 if force else timeout
        rebuilt = rebuild_server(
            host, found, source, patience=patience, tell=tell, progress=progress
        )
    if json:
        show_server(deployment, rebuilt, json)
    else:
        print(f"rebuilt {label(rebuilt)} from {source.name}")
