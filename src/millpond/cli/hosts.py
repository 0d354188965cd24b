"""Which host: the options that commands have in common."""

from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from millpond.cli.output import complain
from millpond.errors import BadOption, HostProblem
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host

T = TypeVar("T")


def refuse_empty(ctx: typer.Context, param: typer.CallbackParam, value: str) -> str:
    """It is a variable of a script that is not set, and not the wish for any host."""
    source = ctx.get_parameter_source(param.name or "")
    if not value and source and source.name == "COMMANDLINE":
        raise BadOption(param.opts[0], "it is empty", "name a host, or leave the option out")
    return value


HostName = Annotated[
    str,
    typer.Option(
        "--host",
        metavar="HOST",
        callback=refuse_empty,
        help="Which host, if there are several.",
    ),
]
HostOption = Annotated[
    str,
    typer.Option(
        "--host", metavar="HOST", callback=refuse_empty, help="This host, if it is fit for it."
    ),
]
Destination = Annotated[
    str,
    typer.Option(
        "--host",
        metavar="HOST",
        callback=refuse_empty,
        help="To this host. Default: the best that fits.",
    ),
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
