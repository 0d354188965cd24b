"""millpond config …"""

from dataclasses import asdict
from typing import Annotated

import typer

from millpond import config
from millpond.cli.output import as_json, table
from millpond.config import HostSettings, Settings

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def check(ctx: typer.Context, json: Json = False) -> None:
    """Check the configuration and say what it comes down to."""
    conf = config.read(ctx.obj.config_files)
    settings = config.own_settings(conf)
    if json:
        plain = {name: _summarize_host(name, host) for name, host in settings.hosts.items()}
        notes = list(config.unread(conf))
        print(as_json({"files": config.files_of(conf), "hosts": plain, "notes": notes}))
        return
    files = ", ".join(str(path) for path in config.files_of(conf))
    print(f"configuration is valid: {files or 'no file, every option at its default'}")
    for line in _summarize(settings):
        print(f"  {line}")
    for line in config.unread(conf):
        print(f"  note: {line}")


@app.command()
def show(ctx: typer.Context, json: Json = False) -> None:
    """Show every option, its value and where it was set, valid or not."""
    options = config.list_options(config.read(ctx.obj.config_files))
    if json:
        print(as_json([asdict(each) for each in options]))
        return
    table(
        ("Group", "Option", "Value", "From"),
        [(each.group, each.name, each.value, each.origin) for each in options],
    )


@app.command()
def sample() -> None:
    """Print a configuration file with every option at its default."""
    print(config.sample(), end="")


def _summarize(settings: Settings) -> list[str]:
    """The configuration in a few lines: where, into which pools, and what becomes of images."""
    return [line for name, host in settings.hosts.items() for line in _summarize_host(name, host)]


def _summarize_host(name: str, host: HostSettings) -> list[str]:
    libvirt = host.libvirt
    pools = libvirt.pools
    kept = [
        f"{source}:{libvirt.selection.choose(source).backend}"
        for source in libvirt.selection.mapping
    ]
    kept.append(f"{'others' if kept else 'all'}:{libvirt.selection.blank_backend()}")
    return [
        f"host {name} at {libvirt.connection_uri}, virt_type {libvirt.virt_type}",
        f"templates in {pools.base_images.name} at {pools.base_images.path}, "
        f"disks in {pools.disks.name} at {pools.disks.path}",
        f"images by format: {', '.join(kept)}",
    ]
