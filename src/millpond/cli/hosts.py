"""Which host: the options that commands have in common."""

from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from millpond.cli.output import complain
from millpond.errors import HostProblem
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host

T = TypeVar("T")

HostName = Annotated[
    str, typer.Option("--host", metavar="HOST", help="Which host, if there are several.")
]
HostNames = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="HOST", help="Only this host; repeatable. Default: all."),
]


def ask_hosts(
    deployment: Deployment, hosts: list[str] | None, ask: Callable[[Host], T]
) -> list[tuple[Host, T]]:
    """What each host answers. Of several, one that does not is said, and the others are shown."""
    found = []
    for host in deployment.select(hosts):
        try:
            found.append((host, ask(host)))
        except HostProblem as error:
            if hosts or not deployment.has_several:
                raise
            complain(error)
    return found
