"""millpond cache …"""

import getpass
import os
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from millpond.cli.output import as_json, table
from millpond.cli.progress import transfer
from millpond.compute import precache
from millpond.engine import Engine
from millpond.errors import BadOption
from millpond.images.boot_images import find_boot_images
from millpond.model.formats import DiskFormat
from millpond.model.names import ImageId
from millpond.model.sizes import format_size
from millpond.model.template import Template
from millpond.model.volume import Volume
from millpond.templates.scrub import Outcome, Scrubbed
from millpond.templates.verdicts import Verdict

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Names = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="Templates, or images by name or id.")
]


@app.command("list")
def list_(ctx: typer.Context, json: Json = False) -> None:
    """List the templates: for which image, how prepared, who uses them, why they stay."""
    engine = Engine.load(ctx.obj.config_files)
    verdicts = engine.cache.survey(engine.cache.rules)
    in_cluster = engine.cache.in_cluster()
    images = {each.id: each.name for each in engine.images.all()}
    if json:
        shown = [_plain(each, images) for each in verdicts]
        print(as_json({"templates": shown, "ceph": in_cluster}))
        return
    table(
        ("Image", "Format", "Prepared by", "Size", "Last use", "Stays or goes", "Template"),
        [
            *(_row(each, images) for each in verdicts),
            *(_row_of_cluster(each, verdicts, images) for each in in_cluster),
        ],
    )


@app.command()
def fetch(
    ctx: typer.Context,
    images: Annotated[
        list[str], typer.Argument(metavar="IMAGE...", help="Names, ids, or beginnings of ids.")
    ],
    format: Annotated[
        DiskFormat | None, typer.Option(help="Default: what a server here would be made from.")
    ] = None,
    json: Json = False,
) -> None:
    """Prepare templates ahead of need, so that the first server of an image need not wait."""
    engine = Engine.load(ctx.obj.config_files)
    wanted = [each for name in images for each in _wanted(engine, name, format)]
    size = sum(each.image.size for each in wanted)
    with transfer("fetching templates", lambda: size) as progress:
        concurrency = engine.settings.image_cache.precache_concurrency
        host = engine.host
        made = precache.fetch(host.templates, host.backends, wanted, concurrency, progress)
    if json:
        print(as_json(made))
        return
    table(
        ("Image", "Format", "Prepared by", "Size", "Template"),
        [
            (want.image.name, each.format, each.prepared, format_size(each.size), each.volume)
            for want, each in zip(wanted, made, strict=True)
        ],
    )


@app.command()
def pin(ctx: typer.Context, names: Names) -> None:
    """Keep templates, whether they are used or not."""
    engine = Engine.load(ctx.obj.config_files)
    by = os.environ.get("SUDO_USER") or getpass.getuser()
    for template in _named(engine, names):
        engine.cache.manager.pin(template.volume, by)


@app.command()
def unpin(ctx: typer.Context, names: Names) -> None:
    """Let templates go again when nothing uses them."""
    engine = Engine.load(ctx.obj.config_files)
    for template in _named(engine, names):
        engine.cache.manager.unpin(template.volume)


@app.command()
def prune(
    ctx: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would go. Nothing is changed.")
    ] = False,
    all_unused: Annotated[
        bool, typer.Option("--all-unused", help="However recently they were used.")
    ] = False,
    json: Json = False,
) -> None:
    """Remove templates that nothing uses, by the rules of [image_cache]."""
    engine = Engine.load(ctx.obj.config_files)
    rules = engine.cache.rules.at_once() if all_unused else engine.cache.rules
    if dry_run:
        gone = [each for each in engine.cache.survey(rules) if each.goes]
    else:
        gone = engine.cache.manager.prune(rules)
    if json:
        images = {each.id: each.name for each in engine.images.all()}
        print(as_json([_plain(each, images) for each in gone]))
        return
    for each in gone:
        print(f"{each.cached.template.volume}: {each.reason}")


@app.command()
def verify(
    ctx: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="Templates, or images by name or id."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All templates.")] = False,
    json: Json = False,
) -> None:
    """Read templates again and compare their digests. A wrong one is set aside and fetched
    again, unless disks stand on it."""
    if bool(names) == all_:
        raise BadOption("NAME", "name templates or images, or say --all", "not both")
    engine = Engine.load(ctx.obj.config_files)
    templates = list(engine.cache.all()) if all_ else _named(engine, names or [])
    size = sum(each.size for each in templates)
    with transfer("reading templates", lambda: size) as progress:
        found = [engine.cache.scrub.scrub(each, progress) for each in templates]
    _show_scrubbed(found, json)
    if any(each.outcome is Outcome.WRONG for each in found):
        raise typer.Exit(1)


def _show_scrubbed(found: Sequence[Scrubbed], json: bool) -> None:
    if json:
        print(as_json(found))
        return
    table(
        ("Template", "Found", ""),
        [(each.template.volume, each.outcome, each.detail) for each in found],
    )


def _named(engine: Engine, names: Sequence[str]) -> list[Template]:
    return [each for name in names for each in engine.cache.named(name)]


def _wanted(engine: Engine, name: str, format: DiskFormat | None) -> list[precache.Wanted]:
    image = engine.images.get(name)
    if format:
        return [precache.Wanted(image=image, format=format)]
    boot = find_boot_images(image.format, image.properties, engine.images.get)
    return list(precache.wanted(image, boot, engine.settings.libvirt.selection))


def _row(verdict: Verdict, images: Mapping[ImageId, str]) -> tuple[str, ...]:
    cached = verdict.cached
    template = cached.template
    return (
        images.get(template.image, template.image or "none"),
        template.format,
        template.prepared,
        format_size(template.size),
        f"{cached.last_used:%Y-%m-%d %H:%M:%S}",
        _fate(verdict),
        template.volume,
    )


def _fate(verdict: Verdict) -> str:
    if verdict.goes:
        return f"goes: {verdict.reason}"
    until = f", until {verdict.goes_at:%Y-%m-%d %H:%M:%S}" if verdict.goes_at else ""
    return f"stays: {verdict.reason}{until}"


def _row_of_cluster(
    volume: Volume, verdicts: Sequence[Verdict], images: Mapping[ImageId, str]
) -> tuple[str, ...]:
    """What a cluster has is known by the template of the same name that came first."""
    of = {each.cached.template.volume: each.cached.template.image for each in verdicts}
    image = of.get(volume.name)
    name = images.get(image, image) if image else "unknown"
    size = format_size(volume.capacity)
    return (name, "raw", "import", size, "", "stays: in the Ceph cluster", volume.name)


def _plain(verdict: Verdict, images: Mapping[ImageId, str]) -> dict[str, object]:
    cached = verdict.cached
    return {
        "template": cached.template,
        "image_name": images.get(cached.template.image),
        "space": cached.space,
        "users": cached.users,
        "last_used": cached.last_used,
        "pinned_by": cached.pinned_by,
        "goes": verdict.goes,
        "reason": verdict.reason,
        "goes_at": verdict.goes_at,
    }
