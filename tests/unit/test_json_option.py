"""--json on every command, walked through."""

from collections.abc import Iterator
from typing import Any

import typer

from millpond.cli import main

WITHOUT = {
    "server console": "a terminal, or the bytes that the guest printed",
    "server edit": "an editor",
    "server ssh": "a terminal in the guest, or what a command there prints",
    "config sample": "a configuration file",
}


def leaves() -> Iterator[tuple[str, Any]]:
    for name in main.COMMANDS:
        verb = main.load_command(name, [])
        if not isinstance(verb, typer.Typer):
            alone = typer.Typer(add_completion=False)
            alone.command()(verb)
            verb = alone
        yield from _leaves(name, typer.main.get_command(verb))


def _leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if not inner:
        yield name, command
        return
    for word, each in inner.items():
        yield from _leaves(f"{name} {word}", each)


def test_every_command_prints_json_when_asked_or_has_a_reason_not_to():
    found = dict(leaves())
    assert len(found) > 50
    without = {
        name
        for name, command in found.items()
        if not any("--json" in option.opts for option in command.params)
    }
    assert without == set(WITHOUT)
