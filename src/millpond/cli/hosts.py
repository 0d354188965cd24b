"""Which host: the options that commands have in common."""

from typing import Annotated

import typer

Host = Annotated[
    str, typer.Option("--host", metavar="HOST", help="Which host, if there are several.")
]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="HOST", help="Only this host; repeatable. Default: all."),
]
