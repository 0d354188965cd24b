"""millpond cache …"""

import getpass
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from millpond.cli.hosts import HostNames, ask_hosts
from millpond.cli.output import as_json, table, transfer
from millpond.disks import precache
from millpond.errors import BadOption, TemplateNotFound
from millpond.hosts.cache import (
    find_status,
    get_templates,
    list_cluster_templates,
    list_templates,
    survey,
)
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.hosts.legacy import refuse_legacy_servers
from millpond.model.boot_images import find_boot_images
from millpond.model.callbacks import Progress
from millpond.model.formats import DiskFormat
from millpond.model.names import printable
from millpond.model.sizes import format_size
from millpond.model.stream import StreamStatus
from millpond.model.template import Template
from millpond.model.volume import Volume
from millpond.templates.scrub import Outcome, Scrubbed
from millpond.templates.verdicts import TemplateVerdict

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_COLUMNS = ("Image", "Format", "Prepared by", "Size", "Last use", "Stays or goes", "Template")
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
States = Mapping[str, StreamStatus]
"""Of templates that are still arriving, by their names."""
NO_STREAMS: States = {}
Names = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="Templates, or images by name or id.")
]


@app.command("list")
def list_(ctx: typer.Context, host: HostNames = None, json: Json = False) -> None:
    """List the templates. It says for which image, how prepared, who uses them, why they stay."""
    deployment = Deployment.load(ctx.obj.config_files)
    images = deployment.image_names()
    listed = [each for _, each in ask_hosts(deployment, host, lambda host: _list(host, images))]
    if json:
        shown = [each for found in listed for each in found.plain]
        in_cluster = [{"host": found.host, **asdict(v)} for found in listed for v in found.cluster]
        print(as_json({"templates": shown, "ceph": in_cluster}))
        return
    where = ["Host"] if deployment.has_several else []
    table(
        (*where, *_COLUMNS),
        [((found.host, *row) if where else row) for found in listed for row in found.rows],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    """The templates of one host, as they are shown."""

    host: str
    plain: list[dict[str, object]]
    cluster: list[Volume]
    rows: list[tuple[str, ...]]


def _list(host: Host, images: Mapping[str, str]) -> _Listing:
    verdicts = survey(host, host.cache_rules)
    states = {
        each.volume: found for each in list_templates(host) if (found := find_status(host, each))
    }
    in_cluster = list_cluster_templates(host)
    return _Listing(
        host=host.name,
        plain=[_plain(each, images, host.name, states) for each in verdicts],
        cluster=in_cluster,
        rows=[
            *(_row(each, images, states) for each in verdicts),
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
    host: HostNames = None,
    json: Json = False,
) -> None:
    """Prepare templates ahead of need. The first server of an image need not wait then."""
    deployment = Deployment.load(ctx.obj.config_files)
    wanted = {
        host: [each for name in images for each in _plan(host, name, format)]
        for host in deployment.select(host)
    }
    size = sum(each.image.size for theirs in wanted.values() for each in theirs)
    with transfer("fetching templates", lambda: size) as progress:
        made = [
            (host.name, want, template)
            for host, theirs in wanted.items()
            for want, template in zip(theirs, _fetch(host, theirs, progress), strict=True)
        ]
    if json:
        print(as_json([{"host": where, **asdict(each)} for where, _, each in made]))
        return
    where = ["Host"] if deployment.has_several else []
    table(
        (*where, "Image", "Format", "Prepared by", "Size", "Template"),
        [
            (
                *([name] if where else []),
                want.image.name,
                each.format,
                each.prepared,
                format_size(each.size),
                each.volume,
            )
            for name, want, each in made
        ],
    )


def _fetch(host: Host, wanted: Sequence[precache.Wanted], progress: Progress) -> list[Template]:
    concurrency = host.shared.settings.image_cache.precache_concurrency
    return precache.fetch(host.handlers.chosen, host.storage, wanted, concurrency, progress)


@app.command()
def pin(ctx: typer.Context, names: Names, host: HostNames = None, json: Json = False) -> None:
    """Keep templates, whether they are used or not."""
    deployment = Deployment.load(ctx.obj.config_files)
    by = os.environ.get("SUDO_USER") or getpass.getuser()
    found = _find_templates(deployment.select(host), names)
    for each, template in found:
        each.cache_manager.pin(template.volume, by)
    _show_pins(deployment, found, by, json)


@app.command()
def unpin(ctx: typer.Context, names: Names, host: HostNames = None, json: Json = False) -> None:
    """Let templates go again when nothing uses them."""
    deployment = Deployment.load(ctx.obj.config_files)
    found = _find_templates(deployment.select(host), names)
    for each, template in found:
        each.cache_manager.unpin(template.volume)
    _show_pins(deployment, found, None, json)


def _show_pins(
    deployment: Deployment, found: Sequence[tuple[Host, Template]], by: str | None, json: bool
) -> None:
    images = deployment.image_names()
    if json:
        plain = [
            {"host": host.name, "image_name": images.get(each.image), "pinned_by": by}
            | {"template": each}
            for host, each in found
        ]
        print(as_json(plain))
        return
    for host, each in found:
        what = f"{_image_name(each, images)} ({each.format})"
        on = _on(deployment, host.name)
        print(printable(f"{on}{'pinned' if by else 'unpinned'} the template of {what}"))


@app.command()
def prune(
    ctx: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would go. Nothing is changed.")
    ] = False,
    all_unused: Annotated[
        bool, typer.Option("--all-unused", help="However recently they were used.")
    ] = False,
    host: HostNames = None,
    json: Json = False,
) -> None:
    """Remove templates that nothing uses, by the rules of [image_cache]."""
    deployment = Deployment.load(ctx.obj.config_files)
    gone = [
        (host.name, each)
        for host in deployment.select(host)
        for each in _prune(host, dry_run=dry_run, all_unused=all_unused)
    ]
    images = deployment.image_names()
    if json:
        print(as_json([_plain(each, images, where) for where, each in gone]))
        return
    for where, each in gone:
        verb = "would remove" if dry_run else "removed"
        print(printable(f"{_on(deployment, where)}{verb} {_describe(each, images)}"))
    freed = format_size(sum(each.cached.space for _, each in gone))
    print(f"{'would free' if dry_run else 'freed'} {freed}")


def _describe(verdict: TemplateVerdict, images: Mapping[str, str]) -> str:
    template, space = verdict.cached.template, format_size(verdict.cached.space)
    of = f"of {_image_name(template, images)} ({template.format}, {space})"
    return f"the template {of}: {verdict.reason}"


def _image_name(template: Template, images: Mapping[str, str]) -> str:
    """A blank one is of no image, and its name tells of what it is."""
    if not template.image:
        return template.volume
    return images.get(template.image, f"image {template.image}, which is gone")


def _prune(host: Host, *, dry_run: bool, all_unused: bool) -> Sequence[TemplateVerdict]:
    if host.settings.libvirt.selection.images_type.pools_only:
        refuse_legacy_servers(host)  # else their bases would go
    rules = host.cache_rules.at_once() if all_unused else host.cache_rules
    if dry_run:
        return [each for each in survey(host, rules) if each.goes]
    return host.cache_manager.prune(rules)


def _on(deployment: Deployment, host: str) -> str:
    return f"{host}: " if deployment.has_several else ""


@app.command()
def verify(
    ctx: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="Templates, or images by name or id."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All templates.")] = False,
    host: HostNames = None,
    json: Json = False,
) -> None:
    """Read templates again and compare their digests. A wrong one is set aside and fetched
    again, unless disks are backed by it."""
    if bool(names) == all_:
        reason = "--all needs no names" if names else "nothing is named"
        raise BadOption("NAME", reason, "name templates or images, or say --all")
    deployment = Deployment.load(ctx.obj.config_files)
    hosts = deployment.select(host)
    every = ((host, each) for host in hosts for each in list_templates(host))
    templates = list(every) if all_ else _find_templates(hosts, names or [])
    size = sum(each.size for _, each in templates)
    with transfer("reading templates", lambda: size) as progress:
        found = [(host.name, host.scrub.scrub(each, progress)) for host, each in templates]
    _show_scrubbed(deployment, found, json)
    if any(each.outcome is Outcome.WRONG for _, each in found):
        raise typer.Exit(1)


def _show_scrubbed(
    deployment: Deployment, found: Sequence[tuple[str, Scrubbed]], json: bool
) -> None:
    images = deployment.image_names()
    if json:
        plain = [
            {"host": where, "image_name": images.get(each.template.image), **asdict(each)}
            for where, each in found
        ]
        print(as_json(plain))
        return
    where = ["Host"] if deployment.has_several else []
    table(
        (*where, "Image", "Found", "", "Template"),
        [
            (
                *([name] if where else []),
                images.get(each.template.image, each.template.image or "none"),
                each.outcome,
                each.detail,
                each.template.volume,
            )
            for name, each in found
        ],
    )


def _find_templates(hosts: Sequence[Host], names: Sequence[str]) -> list[tuple[Host, Template]]:
    """On whichever hosts have them; on none is an error."""
    found = []
    for name in names:
        missing: list[TemplateNotFound] = []
        for host in hosts:
            try:
                found += [(host, each) for each in get_templates(host, name)]
            except TemplateNotFound as error:
                missing.append(error)
        if len(missing) == len(hosts):
            raise missing[0]
    return found


def _plan(host: Host, name: str, format: DiskFormat | None) -> list[precache.Wanted]:
    image = host.images.get(name)
    if format:
        return [precache.Wanted(image=image, format=format)]
    boot = find_boot_images(image.format, image.properties, host.images.get)
    return list(precache.plan(image, boot, host.settings.libvirt.selection))


def _row(verdict: TemplateVerdict, images: Mapping[str, str], states: States) -> tuple[str, ...]:
    cached = verdict.cached
    template = cached.template
    found = states.get(template.volume)
    return (
        images.get(template.image, template.image or "none"),
        template.format,
        f"{template.prepared}, {found.summary}" if found else template.prepared,
        format_size(template.size),
        f"{cached.last_used:%Y-%m-%d %H:%M:%S}",
        _retention(verdict),
        template.volume,
    )


def _retention(verdict: TemplateVerdict) -> str:
    if verdict.goes:
        return f"goes: {verdict.reason}"
    until = f", until {verdict.goes_at:%Y-%m-%d %H:%M:%S}" if verdict.goes_at else ""
    return f"stays: {verdict.reason}{until}"


def _row_of_cluster(
    volume: Volume, verdicts: Sequence[TemplateVerdict], images: Mapping[str, str]
) -> tuple[str, ...]:
    """What a cluster has is known by the template of the same name that came first."""
    of = {each.cached.template.volume: each.cached.template.image for each in verdicts}
    image = of.get(volume.name)
    name = images.get(image, image) if image else "unknown"
    size = format_size(volume.capacity)
    return (name, "raw", "import", size, "", "stays: in the Ceph cluster", volume.name)


def _plain(
    verdict: TemplateVerdict,
    images: Mapping[str, str],
    host: str,
    states: States = NO_STREAMS,
) -> dict[str, object]:
    cached = verdict.cached
    found = states.get(cached.template.volume)
    return {
        "host": host,
        "template": cached.template,
        "image_name": images.get(cached.template.image),
        "space": cached.space,
        "stream": {**asdict(found), "percent": found.percent} if found else None,
        "users": cached.users,
        "last_used": cached.last_used,
        "pinned_by": cached.pinned_by,
        "goes": verdict.goes,
        "reason": verdict.reason,
        "goes_at": verdict.goes_at,
    }
