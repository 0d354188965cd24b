"""The command ``millpond``: a composition root. It parses words, calls the host, shows."""

import logging
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
from typer.main import get_command_name
from typer.models import CommandInfo

from millpond import __version__
from millpond.cli.output import GlobalOptions, complain
from millpond.errors import MillpondError
from millpond.model.names import printable

# Verb to module: nothing is loaded but what the verb needs.
COMMANDS = {
    "image": ("millpond.cli.image", "Add, list, show, rename, label, save and remove images."),
    "server": ("millpond.cli.server", "Create, list, start, stop and delete servers."),
    "cache": ("millpond.cli.cache", "List, fetch, pin, prune and verify templates."),
    "host": ("millpond.cli.host", "List, show, drain and enable hosts."),
    "network": ("millpond.cli.network", "List, start and stop libvirt networks."),
    "pool": ("millpond.cli.pool", "List and show storage pools."),
    "transition": ("millpond.cli.transition", "Move disks out of Nova's legacy layout."),
    "explain": ("millpond.cli.explain", "Say what would become of an image here, and why."),
    "config": ("millpond.cli.config", "Check, show and sample the configuration."),
    "doctor": ("millpond.cli.doctor", "Look for what is wrong on this host, and repair it."),
}

# The same for a word after the verb that needs more than its siblings do.
SUBCOMMANDS = {
    ("cache", "settle"): "millpond.cli.cache_settle",
    ("host", "disable"): "millpond.cli.host_drain",
    ("host", "drain"): "millpond.cli.host_drain",
    ("host", "enable"): "millpond.cli.host_drain",
    ("image", "add"): "millpond.cli.image_add",
    ("image", "index"): "millpond.cli.image_index",
    ("image", "publish-index"): "millpond.cli.image_index",
    ("server", "adopt"): "millpond.cli.server_adopt",
    ("server", "cdrom"): "millpond.cli.server_cdrom",
    ("server", "clone"): "millpond.cli.server_copy",
    ("server", "export"): "millpond.cli.server_copy",
    ("server", "import"): "millpond.cli.server_copy",
    ("server", "create"): "millpond.cli.server_create",
    ("server", "disk"): "millpond.cli.server_disk",
    ("server", "evacuate"): "millpond.cli.server_evacuate",
    ("server", "migrate"): "millpond.cli.server_migrate",
    ("server", "nic"): "millpond.cli.server_nic",
    ("server", "edit"): "millpond.cli.server_edit",
    ("server", "password"): "millpond.cli.server_password",
    ("server", "pause"): "millpond.cli.server_pause",
    ("server", "unpause"): "millpond.cli.server_pause",
    ("server", "rebuild"): "millpond.cli.server_rebuild",
    ("server", "rescue"): "millpond.cli.server_rescue",
    ("server", "unrescue"): "millpond.cli.server_rescue",
    ("server", "resize"): "millpond.cli.server_resize",
    ("server", "rename"): "millpond.cli.server_rename",
    ("server", "set"): "millpond.cli.server_set",
    ("server", "ssh"): "millpond.cli.server_ssh",
    ("server", "start"): "millpond.cli.server_start",
    ("server", "snapshot"): "millpond.cli.server_snapshot",
}

# As the help lists them: along the life of what they are about.
ORDER = {
    "image": "add list show save set rename index publish-index remove",
    "server": "create list show start stop reboot pause unpause console ssh password "
    "resize rebuild rescue unrescue snapshot clone export import migrate evacuate "
    "set rename edit adopt delete",
}

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        print(f"millpond {__version__}")
        raise typer.Exit


@app.callback()
def millpond(
    ctx: typer.Context,
    config_file: Annotated[
        list[Path] | None,
        typer.Option(help="Configuration; repeatable. Default: /etc/millpond/millpond.conf."),
    ] = None,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            help="Show what changes; -vv: and why; -vvv: and what libraries log.",
        ),
    ] = 0,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Prepare the disks of virtual machines on libvirt storage pools, and run them."""
    _log(verbose)
    ctx.obj = GlobalOptions(config_files=tuple(config_file or ()))


def main() -> None:
    """Every error of ours is one sentence and a hint; anything else is a bug and looks like it."""
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, _leave)
    if sys.argv[1:2] == ["help"]:
        sys.argv[1:] = [*sys.argv[2:], "--help"]
    _add_commands([*sys.argv[1:], *os.environ.get("COMP_WORDS", "").split()])
    try:
        app(prog_name="millpond")
    except MillpondError as error:
        complain(error)
        sys.exit(error.exit_code)


def _leave(number: int, _frame: object) -> None:
    """Ended from outside, or the terminal is gone: what was begun is undone on the way out."""
    raise SystemExit(128 + number)


def _add_commands(words: list[str]) -> None:
    """All verbs by name, and what they do for the one that was called."""
    for name, (_, explanation) in COMMANDS.items():
        verb = load_command(name, words) if name in words else typer.Typer()
        if isinstance(verb, typer.Typer):
            app.add_typer(verb, name=name, help=explanation)
        else:
            app.command(name, help=explanation)(verb)


def load_command(name: str, words: list[str]) -> typer.Typer | Callable[..., None]:
    """A verb with all that may follow it, but for what is loaded alone and was not asked for;
    or the one function of a verb that nothing follows."""
    module = import_module(COMMANDS[name][0])
    if not hasattr(module, "app"):
        command: Callable[..., None] = module.command
        return command
    verb: typer.Typer = module.app
    groups = {group.name for group in verb.registered_groups}
    siblings = {_name(command) for command in verb.registered_commands} | groups
    for (parent, word), alone in SUBCOMMANDS.items():
        if parent == name and (word in words or siblings.isdisjoint(words)):
            import_module(alone)
    if order := ORDER.get(name, "").split():
        verb.registered_commands.sort(key=lambda command: order.index(_name(command)))
    return verb


def _name(command: CommandInfo) -> str:
    return command.name or get_command_name(getattr(command.callback, "__name__", ""))


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), keep="\n")


def _log(verbose: int) -> None:
    level = {0: logging.WARNING, 1: logging.INFO}.get(verbose, logging.DEBUG)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("millpond: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("millpond").setLevel(level)
    # It logs whole URLs, in which there may be credentials.
    logging.getLogger("urllib3").setLevel(logging.WARNING)
    # They log what they also raise, and we say that ourselves.
    for name in ("oslo_utils.imageutils", "castellan"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if verbose > 2:
        logging.getLogger().setLevel(logging.DEBUG)
