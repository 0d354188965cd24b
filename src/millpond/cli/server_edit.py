"""millpond server edit: the domain's XML in an editor, as virsh does it."""

import os
import shlex
import sys
import tempfile
from pathlib import Path

import typer

from millpond.cli.server import Name, app, label
from millpond.errors import BadInput, BadOption, MillpondError
from millpond.hosts.deployment import Deployment
from millpond.libvirt.domains import ON
from millpond.servers import edit as editing
from millpond.system.process import attend


@app.command()
def edit(ctx: typer.Context, server: Name) -> None:
    """Edit the XML of a server's domain. $VISUAL or $EDITOR is started; what is recorded
    stays."""
    host, found = Deployment.load(ctx.obj.config_files).find(server)
    editor = _editor()
    before = editing.read(host, found)
    path = _write_draft(found.name, before)
    try:
        attend(*editor, str(path))
        text = _read_draft(path)
        if text != before:
            editing.write(host, found, before, text)
    except MillpondError:
        print(f"millpond: what you wrote is kept in {path}", file=sys.stderr)
        raise
    path.unlink()
    if text == before:
        print(f"{label(found)} is unchanged")
        return
    runs = host.domains.state(found.id) in ON
    print(f"edited {label(found)}{'; reboot it for that' if runs else ''}")


def _editor() -> list[str]:
    said = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        return shlex.split(said) or ["vi"]
    except ValueError as error:
        advised = "set EDITOR to a program with its options"
        raise BadOption("EDITOR", f"{said!r} is no command: {error}", advised) from error


def _read_draft(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"what you wrote cannot be read: {error}", "edit it again") from error


def _write_draft(name: str, text: str) -> Path:
    """For its owner alone: it may hold passwords."""
    number, path = tempfile.mkstemp(prefix=f"{name}-", suffix=".xml")
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(text)
    return Path(path)
