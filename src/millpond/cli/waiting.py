"""--wait: until the guest of a server is up."""

import sys
from typing import Annotated

import typer

from millpond.hosts.host import Host
from millpond.model.server import Server
from millpond.servers.guest import Stage, wait_for_guest

PATIENCE = 600.0
WaitOption = Annotated[
    bool,
    typer.Option(
        "--wait",
        help="Wait until cloud-init has finished in the guest or, in one without it, until "
        "the guest agent answers or the console asks for a login.",
    ),
]
WaitTimeoutOption = Annotated[
    float, typer.Option("--wait-timeout", min=1, help="Seconds that the guest has for --wait.")
]


def wait_and_tell(host: Host, server: Server, seconds: float, printed: bytes = b"") -> None:
    """On a terminal it says what it waits for. Interrupted, the server runs on."""

    def tell(stage: Stage) -> None:
        if sys.stderr.isatty():
            print(f"{server.name}: waits for {stage} (up to {seconds:g} s)", file=sys.stderr)

    try:
        wait_for_guest(host, server, seconds, printed=printed, tell=tell)
    except KeyboardInterrupt:
        print(f"millpond: server {server.name!r} runs on", file=sys.stderr)
        raise
