"""millpond server set …"""

from typing import Annotated

import typer

from millpond.cli.server import Json, app, chosen, label, show_all
from millpond.cli.several import try_each
from millpond.errors import BadInput
from millpond.hosts.deployment import Deployment
from millpond.model.server import Server
from millpond.servers.settings import Changes, change


@app.command("set")
def set_(
    ctx: typer.Context,
    servers: Annotated[list[str], typer.Argument(metavar="SERVER...", help="Names or whole ids.")],
    autostart: Annotated[
        bool | None,
        typer.Option(
            "--autostart/--no-autostart",
            help="Start it with its host, if it ran before; default of a new server: yes.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Change how servers are set up."""
    changes = Changes(autostart=autostart)
    if changes == Changes():
        raise BadInput("nothing is to be changed", "add an option of 'millpond server set --help'")
    deployment = Deployment.load(ctx.obj.config_files)
    found = chosen(deployment, servers)

    def act(server: Server) -> Server:
        changed = change(deployment.host_of(server), server, changes)
        if not json:
            print(f"changed {label(server)}")
        return changed

    done, status = try_each(found, act)
    if json:
        show_all(deployment, done, json, alone=len(servers) == 1)
    raise typer.Exit(status)
