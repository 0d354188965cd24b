"""millpond server password"""

import sys
from typing import Annotated

import typer

from millpond.cli.output import as_json
from millpond.cli.server import Json, Name, app, label
from millpond.errors import BadInput
from millpond.hosts.deployment import Deployment
from millpond.servers.password import check_ready, set_password

_LONGEST = 512
"""Characters; crypt(3) takes no more."""


@app.command()
def password(
    ctx: typer.Context,
    server: Name,
    user: Annotated[str, typer.Option(help="Whose password.")] = "root",
    json: Json = False,
) -> None:
    """Set a user's password in a running guest. Its agent does it; the password is asked for, or
    one line of standard input."""
    host, found = Deployment.load(ctx.obj.config_files).find(server)
    check_ready(host, found, user)
    set_password(host, found, user, _read_password(f"New password of {user} in {found.name}"))
    if json:
        print(as_json({"id": found.id, "name": found.name, "user": user}))
    else:
        print(f"set the password of {user} in {label(found)}")


def _read_password(prompt: str) -> str:
    if sys.stdin.isatty():
        typed: str = typer.prompt(prompt, hide_input=True, confirmation_prompt=True, err=True)
        return _checked(typed)
    try:
        line = sys.stdin.buffer.readline(8 * _LONGEST).decode()
    except UnicodeDecodeError:  # which would show some of it
        raise BadInput("the password is not UTF-8 text", "write other characters") from None
    return _checked(line.removesuffix("\n").removesuffix("\r"))


def _checked(text: str) -> str:
    if not text:
        raise BadInput("there is no password", "type it, or give it as a line of standard input")
    if len(text) > _LONGEST or not text.isprintable():
        raise BadInput(
            f"a password has {_LONGEST} characters at the most, and no control characters",
            "choose another",
        )
    return text
