"""Which host: the options that commands have in common."""

from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from millpond.cli.complaint import complain
from millpond.engine import Engine
from millpond.errors import HostProblem
from millpond.fleet import Fleet

T = TypeVar("T")

Host = Annotated[
    str, typer.Option("--host", metavar="HOST", help="Which host, if there are several.")
]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="HOST", help="Only this host; repeatable. Default: all."),
]


def asked(
    fleet: Fleet, hosts: list[str] | None, ask: Callable[[Engine], T]
) -> list[tuple[Engine, T]]:
    """What each host answers. Of several, one that does not is said, and the others are shown."""
    found = []
    for engine in fleet.chosen(hosts):
        try:
            found.append((engine, ask(engine)))
        except HostProblem as error:
            if hosts or not fleet.has_several:
                raise
            complain(error)
    return found
