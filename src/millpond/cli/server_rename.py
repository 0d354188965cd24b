"""millpond server rename"""

from typing import Annotated

import typer

from millpond.cli.server import Json, Name, app, show_server
from millpond.hosts.deployment import Deployment
from millpond.servers import rename as renaming


@app.command()
def rename(
    ctx: typer.Context,
    server: Name,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new name.")],
    json: Json = False,
) -> None:
    """Rename a server that is off. The host name of its guest stays."""
    deployment = Deployment.load(ctx.obj.config_files)
    host, found = deployment.find(server)
    renamed = renaming.rename(host, found, name)
    if json:
        show_server(deployment, renamed, json)
    else:
        print(f"renamed {found.name} to {renamed.name}")
