"""millpond server pause, unpause"""

from typing import Annotated

import typer

from millpond.cli.server import Every, Json, Names, app, change
from millpond.hosts.deployment import Deployment
from millpond.model.server import Server
from millpond.servers import pause as pausing

AllOption = Annotated[bool, typer.Option("--all", help="Every server that runs.")]


@app.command()
def pause(
    ctx: typer.Context, servers: Names = None, all_: AllOption = False, json: Json = False
) -> None:
    """Pause servers. Their guests keep their memory, and do nothing until 'server unpause'."""
    deployment = Deployment.load(ctx.obj.config_files)

    def act(server: Server) -> str:
        done = pausing.pause(deployment.host_of(server), server)
        return "paused" if done else "is paused already"

    change(deployment, servers, Every.RUNNING if all_ else None, act, json)


@app.command()
def unpause(
    ctx: typer.Context, servers: Names = None, all_: AllOption = False, json: Json = False
) -> None:
    """Resume paused servers."""
    deployment = Deployment.load(ctx.obj.config_files)

    def act(server: Server) -> str:
        done = pausing.unpause(deployment.host_of(server), server)
        return "unpaused" if done else "runs already"

    change(deployment, servers, Every.RUNNING if all_ else None, act, json)
