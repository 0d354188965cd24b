"""millpond host …"""

from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from millpond.cli.output import as_json, details, table
from millpond.hosts.deployment import Deployment
from millpond.model.sizes import format_size
from millpond.scheduling.summary import Amount, HostSummary, PoolSummary

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Refresh = Annotated[
    bool, typer.Option("--refresh", help="Report the hosts to Placement again, as they are now.")
]

_IMAGE_TYPE = "COMPUTE_IMAGE_TYPE_"


@app.command("list")
def list_(ctx: typer.Context, refresh: Refresh = False, json: Json = False) -> None:
    """List the hosts. It says whether they answer, what they have, and which images they take."""
    found = Deployment.load(ctx.obj.config_files).summaries(refresh=refresh)
    if json:
        print(as_json(found))
        return
    table(
        ("Host", "State", "vCPUs", "Memory", "Disk", "Servers", "Image types"),
        [_row(each) for each in found],
    )


@app.command()
def show(
    ctx: typer.Context,
    host: Annotated[str, typer.Argument(metavar="HOST", help="As the configuration names it.")],
    refresh: Refresh = False,
    json: Json = False,
) -> None:
    """Show a host with its pools of disks."""
    deployment = Deployment.load(ctx.obj.config_files)
    name = deployment.host(host).name
    (found,) = [each for each in deployment.summaries(refresh=refresh) if each.name == name]
    if json:
        print(as_json(found))
        return
    details(
        [
            ("Host", found.name),
            ("Address", found.uri),
            ("State", f"{found.state}: {found.problem}" if found.problem else found.state),
            *([("Disabled", found.disabled)] if found.disabled else []),
            ("UUID", found.uuid or "unknown"),
            ("Servers", str(found.servers)),
            ("vCPUs", _vcpus(found)),
            ("Memory", _sizes(found.memory)),
            ("Image types", ", ".join(_image_types(found.traits)) or "none"),
            ("Other traits", ", ".join(_others(found.traits)) or "none"),
            *((f"Pool {each.name}", _pool_line(each)) for each in found.pools),
        ]
    )


def _row(host: HostSummary) -> tuple[str, ...]:
    disk = Amount(
        used=sum(each.disk.used for each in host.pools),
        capacity=sum(each.disk.capacity for each in host.pools),
    )
    return (
        host.name,
        host.state,
        _vcpus(host),
        _sizes(host.memory),
        _sizes(disk if host.pools else None),
        str(host.servers),
        ", ".join(_image_types(host.traits)),
    )


def _pool_line(pool: PoolSummary) -> str:
    takes = [*_image_types(pool.image_types), *(["blank disks"] if pool.takes_blank_disks else [])]
    shared = f"; shared with {', '.join(pool.shared_with)}" if pool.shared_with else ""
    return f"{_sizes(pool.disk)} promised; {', '.join(takes) or 'no disks by image'}{shared}"


def _vcpus(host: HostSummary) -> str:
    return f"{host.vcpus.used} of {host.vcpus.capacity}" if host.vcpus else ""


def _sizes(amount: Amount | None) -> str:
    return f"{format_size(amount.used)} of {format_size(amount.capacity)}" if amount else ""


def _image_types(traits: Iterable[str]) -> list[str]:
    found = (each.removeprefix(_IMAGE_TYPE).lower() for each in traits if _is_image_type(each))
    return sorted(found)


def _others(traits: Iterable[str]) -> Iterator[str]:
    return (each for each in traits if not _is_image_type(each))


def _is_image_type(trait: str) -> bool:
    return trait.startswith(_IMAGE_TYPE)
