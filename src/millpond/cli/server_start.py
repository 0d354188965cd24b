"""millpond server start"""

from typing import Annotated

import typer

from millpond.cli.server import Every, Json, Names, app, change
from millpond.cli.waiting import PATIENCE, WaitOption, WaitTimeoutOption, wait_and_tell
from millpond.errors import Tool
from millpond.hosts.deployment import Deployment
from millpond.libvirt.domains import ON
from millpond.model.server import Server
from millpond.servers import power, streams
from millpond.servers.guest import read_console


@app.command()
def start(
    ctx: typer.Context,
    servers: Names = None,
    all_: Annotated[bool, typer.Option("--all", help="Every server that is stopped.")] = False,
    wait: WaitOption = False,
    wait_timeout: WaitTimeoutOption = PATIENCE,
    json: Json = False,
) -> None:
    """Start servers. What is recorded is written into their domains."""
    deployment = Deployment.load(ctx.obj.config_files)

    def act(server: Server) -> str:
        host = deployment.host_of(server)
        idle = server.should_run and not server.operation
        state = host.domains.state(server.id)
        runs = idle and state in ON and not streams.find_waiting(host, [server])
        printed = read_console(host, server) if wait and not runs else b""
        if not runs:
            power.start(host, server)
        if wait:
            wait_and_tell(host, server, wait_timeout, printed)
        if runs and state == "paused":
            return f"is paused ('{Tool.SERVER} unpause' lets it run on)"
        return "runs already" if runs else "started"

    change(deployment, servers, Every.STOPPED if all_ else None, act, json)
