"""millpond network …"""

from dataclasses import asdict
from typing import Annotated

import typer

from millpond.cli.hosts import HostName, HostNames, ask_hosts
from millpond.cli.output import as_json, table
from millpond.errors import Conflict
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.libvirt.domains import ON
from millpond.libvirt.networks import HostNetwork
from millpond.model.server import NetworkKind

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_COLUMNS = ("State", "Autostart", "Kind", "Bridge", "Address", "DHCP", "Leases")
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Name = Annotated[str, typer.Argument(metavar="NETWORK", help="The network's name.")]


@app.command("list")
def list_(ctx: typer.Context, host: HostNames = None, json: Json = False) -> None:
    """List libvirt networks, and the host's other bridges."""
    deployment = Deployment.load(ctx.obj.config_files)
    answers = ask_hosts(deployment, host, _look)
    if json:
        print(as_json([each for host, found in answers for each in _plain(host, *found)]))
        return
    several = deployment.has_several
    rows = [
        (name, *([host.name] if several else []), *rest)
        for host, found in answers
        for name, *rest in _rows(host, *found)
    ]
    table(("Network", *(["Host"] if several else []), *_COLUMNS), rows)


@app.command()
def start(
    ctx: typer.Context,
    network: Name,
    autostart: Annotated[
        bool | None,
        typer.Option("--autostart/--no-autostart", help="Also whenever the host starts."),
    ] = None,
    host: HostName = "",
    json: Json = False,
) -> None:
    """Start a libvirt network."""
    there = Deployment.load(ctx.obj.config_files).host(host)
    there.networks.start(network)
    if autostart is not None:
        there.networks.set_autostart(network, autostart)
    _report(there, network, "started", json)


@app.command()
def stop(
    ctx: typer.Context,
    network: Name,
    force: Annotated[
        bool, typer.Option("--force", help="Also while running servers use it.")
    ] = False,
    host: HostName = "",
    json: Json = False,
) -> None:
    """Stop a libvirt network that no running server uses."""
    there = Deployment.load(ctx.obj.config_files).host(host)
    there.networks.get(network)
    if not force and (users := _running_users(there, network)):
        raise Conflict(
            f"libvirt network {network!r} is in use by {', '.join(users)}",
            "stop them first; --force disconnects them until they are started again",
        )
    there.networks.stop(network)
    _report(there, network, "stopped", json)


def _running_users(host: Host, network: str) -> list[str]:
    users = {
        server.id: server.name
        for server in host.records.all()
        for each in server.networks
        if (each.kind, each.source) == (NetworkKind.NETWORK, network)
    }
    states = host.domains.states(users) if users else {}
    return [name for id, name in users.items() if states.get(id) in ON]


def _report(host: Host, network: str, done: str, json: bool) -> None:
    if json:
        print(as_json(_plain_network(host, host.networks.get(network))))
    else:
        print(f"{done} {network}")


def _look(host: Host) -> tuple[list[HostNetwork], list[str]]:
    """Networks, and the bridges that are of none of them."""
    networks = host.networks.all()
    theirs = {each.bridge for each in networks}
    return networks, [each for each in host.networks.bridges() or () if each not in theirs]


def _rows(host: Host, networks: list[HostNetwork], bridges: list[str]) -> list[tuple[str, ...]]:
    found = [
        (
            each.name,
            "active" if each.active else "inactive",
            "yes" if each.autostart else "no",
            each.forward or "isolated",
            each.bridge,
            ", ".join(each.addresses),
            "yes" if each.dhcp else "no",
            str(len(host.networks.leases(each.name))) if each.active else "",
        )
        for each in networks
    ]
    return [*found, *((f"bridge:{each}", "", "", "bridge", each, "", "", "") for each in bridges)]


def _plain(host: Host, networks: list[HostNetwork], bridges: list[str]) -> list[dict[str, object]]:
    found = [_plain_network(host, each) for each in networks]
    found += [{"host": host.name, "kind": NetworkKind.BRIDGE, "name": each} for each in bridges]
    return found


def _plain_network(host: Host, network: HostNetwork) -> dict[str, object]:
    leases = host.networks.leases(network.name) if network.active else []
    kind = {"host": host.name, "kind": NetworkKind.NETWORK}
    return {**kind, **asdict(network), "leases": [asdict(each) for each in leases]}
