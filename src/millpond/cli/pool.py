"""millpond pool …"""

from dataclasses import asdict
from typing import Annotated

import typer

from millpond.cli.hosts import HostName, HostNames, ask_hosts
from millpond.cli.output import as_json, details, table
from millpond.hosts.capabilities import volume_owners
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.libvirt.pools import PoolOverview, overview
from millpond.model.sizes import format_size
from millpond.model.volume import PoolUsage

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_COLUMNS = ("Keeps", "State", "Volumes", "Used", "Free", "Path")
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_(ctx: typer.Context, host: HostNames = None, json: Json = False) -> None:
    """List the storage pools that Millpond uses, and how full they are."""
    deployment = Deployment.load(ctx.obj.config_files)
    answers = ask_hosts(deployment, host, _overview)
    pools = [(host.name, each) for host, found in answers for each in found]
    if json:
        print(as_json([{"host": where, **asdict(each)} for where, each in pools]))
        return
    several = deployment.has_several
    table(
        ("Pool", *(["Host"] if several else []), *_COLUMNS),
        [(each.name, *([where] if several else []), *_row(each)) for where, each in pools],
    )


@app.command()
def show(
    ctx: typer.Context,
    pool: Annotated[str, typer.Argument(metavar="POOL", help="The pool's name.")],
    host: HostName = "",
    json: Json = False,
) -> None:
    """Show a pool and its volumes."""
    there = Deployment.load(ctx.obj.config_files).host(host)
    found = there.pools.open(pool)
    volumes, usage = found.volumes(), found.usage()
    owners = volume_owners(there, found)
    if json:
        listed = [{**asdict(each), "belongs_to": owners.get(each.name)} for each in volumes]
        print(as_json({"name": pool, "path": found.location, "usage": usage, "volumes": listed}))
        return
    details([("Pool", pool), ("Path", found.location), *_usage_lines(usage)])
    table(
        ("Volume", "Size", "On disk", "Belongs to"),
        [
            (
                each.name,
                format_size(each.capacity),
                format_size(each.allocation),
                owners.get(each.name, "nothing that Millpond knows"),
            )
            for each in volumes
        ],
    )


def _overview(host: Host) -> list[PoolOverview]:
    return overview(host.libvirtd, host.pool_plan, local=host.seems_local)


def _row(pool: PoolOverview) -> tuple[str, ...]:
    usage = pool.usage
    return (
        pool.keeps,
        pool.state,
        str(pool.volumes),
        format_size(usage.allocation) if usage else "",
        format_size(usage.available) if usage else "",
        pool.path,
    )


def _usage_lines(usage: PoolUsage) -> list[tuple[str, str]]:
    return [("Used", format_size(usage.allocation)), ("Free", format_size(usage.available))]
