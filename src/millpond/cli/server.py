"""millpond server …"""

import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any

import typer

from millpond.cli import console as terminal
from millpond.cli.devices import LabelFilter
from millpond.cli.output import as_json, complain, details, note_new_state, table
from millpond.cli.server_lines import (
    disk_line,
    kernel_line,
    nic_lines,
    resize_line,
    size_line,
    ways_in,
)
from millpond.cli.several import try_each
from millpond.errors import BadInput, NoConsole
from millpond.hosts.deployment import Deployment
from millpond.hosts.legacy import find_legacy
from millpond.libvirt.domains import ON
from millpond.model.devices import Vnc
from millpond.model.labels import format_labels, parse_filter
from millpond.model.names import printable
from millpond.model.server import Content, Server
from millpond.model.sizes import format_size
from millpond.records import codec
from millpond.servers import across_hosts, power
from millpond.servers.across_hosts import Addresses

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="SERVER", help="Name or whole id.")]
Names = Annotated[
    list[str] | None, typer.Argument(metavar="SERVER...", help="Names or whole ids.")
]
Shown = Annotated[
    str, typer.Argument(metavar="SERVER", help="Name, id, or 8 characters of it and more.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Timeout = Annotated[
    float, typer.Option(min=1, help="Seconds that the guest has to power itself off.")
]
_SOME = 5
"""Names that a person reads."""
PATIENCE = 60.0
"""Nova's shutdown_timeout."""


@app.command("list")
def list_(ctx: typer.Context, label: LabelFilter = None, json: Json = False) -> None:
    """List all servers, or some of them."""
    fit = parse_filter(label or ())
    deployment = Deployment.load(ctx.obj.config_files)
    servers, damaged = deployment.records.readable()
    servers = [each for each in servers if fit(each.labels)]
    note_new_state(deployment.settings.state_path)
    states = across_hosts.states(deployment, servers)
    known = across_hosts.addresses(deployment, servers, states)
    waits = across_hosts.waits(deployment, servers, states)
    for each in damaged:
        complain(each)
    if json:
        described = (_describe(each, states[each.id], known, waits) for each in servers)
        print(as_json(list(described)))
        return
    _note_legacy(deployment)
    where = ["Host"] if deployment.has_several else []
    table(
        ("Name", "State", *where, "Address", "Image", "Backend", "Disk", "Id"),
        [
            _row(each, _state(each, states[each.id], waits), [each.host] if where else [], known)
            for each in servers
        ],
    )


def _note_legacy(deployment: Deployment) -> None:
    """Nova's layout is deprecated (B23)."""
    found = find_legacy(deployment)
    if found:
        some = ", ".join(found[:_SOME]) + (", …" if len(found) > _SOME else "")
        count = f"{len(found)} server{'s' if len(found) > 1 else ''}"
        note = f"note: {count} with disks in Nova's legacy layout, which is deprecated: {some}"
        print(printable(note), file=sys.stderr)
        print(
            "  hint: 'millpond transition status' says how they come into pools", file=sys.stderr
        )


@app.command()
def show(
    ctx: typer.Context,
    servers: Annotated[
        list[str] | None,
        typer.Argument(metavar="SERVER...", help="Names, ids, or 8 characters of them and more."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every server.")] = False,
    json: Json = False,
) -> None:
    """Show all that is known of servers."""
    deployment = Deployment.load(ctx.obj.config_files)
    found = chosen(deployment, servers, all_, shortened=True)
    show_all(deployment, found, json, alone=len(servers or ()) == 1)


@app.command()
def console(
    ctx: typer.Context,
    server: Shown,
    log: Annotated[bool, typer.Option("--log", help="Print what it printed so far.")] = False,
) -> None:
    """Open the serial console, or print its log. Leave it with Ctrl-]."""
    host, found = Deployment.load(ctx.obj.config_files).find(server, shortened=True)
    if log:
        sys.stdout.buffer.write(host.consoles.read(found.id, found.name))
        return
    if host.domains.state(found.id) != "running":
        raise NoConsole(found.name, "it is not running")
    print(f"Console of {found.name}; leave with Ctrl-]", file=sys.stderr)
    terminal.attach(host.domains.open_console(found.id))


@app.command()
def stop(
    ctx: typer.Context,
    servers: Names = None,
    all_: Annotated[bool, typer.Option("--all", help="Every server that runs.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Power off at once.")] = False,
    timeout: Timeout = PATIENCE,
    json: Json = False,
) -> None:
    """Stop servers. Each guest is asked to power itself off, and waited for."""
    deployment = Deployment.load(ctx.obj.config_files)

    def act(server: Server) -> str:
        host = deployment.host_of(server)
        power.stop(host, server, patience=0 if force else timeout, tell=tell)
        return "stopped"

    change(deployment, servers, Every.RUNNING if all_ else None, act, json)


@app.command()
def reboot(
    ctx: typer.Context,
    servers: Names = None,
    all_: Annotated[bool, typer.Option("--all", help="Every server that runs.")] = False,
    hard: Annotated[bool, typer.Option("--hard", help="Power off at once.")] = False,
    soft: Annotated[
        bool, typer.Option("--soft", help="The guest restarts itself, and its QEMU stays.")
    ] = False,
    timeout: Timeout = PATIENCE,
    json: Json = False,
) -> None:
    """Reboot servers. Off and on again, with what is recorded written into their domains."""
    if hard and soft:
        raise BadInput("--hard and --soft exclude each other", "leave one out")
    deployment = Deployment.load(ctx.obj.config_files)

    def act(server: Server) -> str:
        host = deployment.host_of(server)
        if soft:
            power.restart(host, server, patience=timeout, tell=tell)
        else:
            power.reboot(host, server, patience=0 if hard else timeout, tell=tell)
        return "rebooted"

    change(deployment, servers, Every.RUNNING if all_ else None, act, json)


@app.command()
def delete(
    ctx: typer.Context,
    servers: Annotated[list[str], typer.Argument(metavar="SERVER...", help="Names or whole ids.")],
    force: Annotated[
        bool, typer.Option("--force", help="Leave behind what cannot be reached.")
    ] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete servers and their disks. On a terminal it asks first where one runs, or has data."""
    deployment = Deployment.load(ctx.obj.config_files)
    found = chosen(deployment, servers)
    if not yes and sys.stdin.isatty():
        _ask_about_deleting(deployment, found)

    def act(server: Server) -> Server:
        across_hosts.delete(deployment, server.id, force=force)
        if not json:
            print(f"deleted {label(server)}")
        return server

    done, status = try_each(found, act)
    if json:
        plain = [{"id": each.id, "name": each.name} for each in done]
        print(as_json(plain[0] if len(found) == 1 else plain))
    raise typer.Exit(status)


def _ask_about_deleting(deployment: Deployment, servers: Sequence[Server]) -> None:
    states = across_hosts.states(deployment, servers)
    lost = [
        f"{label(each)}: {', '.join(what)}"
        for each in servers
        if (what := _at_stake(each, states[each.id]))
    ]
    if lost:
        typer.confirm("\n".join([*lost, "Delete?"]), abort=True, err=True)


def _at_stake(server: Server, state: str) -> list[str]:
    data = [each for each in server.disks if each.content is Content.DATA]
    size = format_size(sum(each.size for each in data))
    found = [f"has data disks of {size}"] if data else []
    return [state, *found] if state in ON else found


class Every(Enum):
    """Whom --all means."""

    RUNNING = True
    STOPPED = False


def chosen(
    deployment: Deployment,
    names: Sequence[str] | None,
    all_: bool = False,
    *,
    shortened: bool = False,
) -> list[Server]:
    """Looked up before anything is done to one of them; each once."""
    if bool(names) == all_:
        raise BadInput(
            "no server is named" if not names else "--all needs no names",
            "name servers, or say --all",
        )
    if all_:
        return deployment.records.readable()[0]
    found = [deployment.server(each, shortened=shortened) for each in names or ()]
    return list({each.id: each for each in found}.values())


def change(
    deployment: Deployment,
    names: Sequence[str] | None,
    every: Every | None,
    act: Callable[[Server], str],
    json: bool,
) -> None:
    """Do it to each, and say what was done."""
    found = chosen(deployment, names, every is not None)
    if every:
        states = across_hosts.states(deployment, found)
        found = [each for each in found if _may_be(states[each.id], every)]

    def do(server: Server) -> Server:
        done = act(server)
        if not json:
            print(f"{done} {label(server)}" if " " not in done else f"{label(server)} {done}")
        return server

    done, status = try_each(found, do)
    if json:
        show_all(
            deployment,
            [deployment.server(each.id) for each in done],
            json,
            alone=len(names or ()) == 1,
        )
    raise typer.Exit(status)


def _may_be(state: str, every: Every) -> bool:
    """One whose host does not answer is not passed over in silence."""
    return (state in ON) is every.value or state.startswith(across_hosts.UNKNOWN)


def tell(what: str) -> None:
    print(what, file=sys.stderr)


def label(server: Server) -> str:
    return f"{server.name} ({server.id[:8]})"


def _row(server: Server, state: str, where: list[str], known: Addresses) -> tuple[str, ...]:
    root = server.find_disk()
    return (
        server.name,
        state,
        *where,
        ", ".join(way for each in server.networks for way in ways_in(each, known))
        if state.partition(",")[0] in ON
        else "",
        server.image.name,
        root.backend if root else "",
        format_size(root.size) if root else "",
        server.id[:8] if sys.stdout.isatty() else server.id,  # for people, and for scripts
    )


def _state(server: Server, state: str, waits: Mapping[str, str]) -> str:
    shown = f"{state}, should run" if state == "stopped" and server.should_run else state
    shown = f"{state}, waits for {waits[server.id]}" if server.id in waits else shown
    return f"{shown}, rescued" if server.is_rescued and not server.operation else shown


def _describe(
    server: Server, state: str, known: Addresses, waits: Mapping[str, str]
) -> dict[str, object]:
    return {
        "state": state,
        "waits_for": waits.get(server.id),
        "rescued": server.is_rescued,
        **codec.plain_server(server),
        "networks": _plain_nics(server, known),
    }


def describe_nics(deployment: Deployment, server: Server) -> list[dict[str, Any]]:
    states = across_hosts.states(deployment, [server])
    return _plain_nics(server, across_hosts.addresses(deployment, [server], states))


def _plain_nics(server: Server, known: Addresses) -> list[dict[str, Any]]:
    return [
        {**codec.plain(each), "addresses": known.get(each.mac, ())} for each in server.networks
    ]


def show_server(deployment: Deployment, server: Server, json: bool) -> None:
    show_all(deployment, [server], json, alone=True)


def show_all(
    deployment: Deployment, servers: Sequence[Server], json: bool, *, alone: bool
) -> None:
    """In JSON one that is named alone is an object, and several are a list."""
    states = across_hosts.states(deployment, servers)
    known = across_hosts.addresses(deployment, servers, states)
    displays = across_hosts.displays(deployment, servers, states)
    waits = across_hosts.waits(deployment, servers, states)
    if json:
        plain = [
            {**_describe(each, states[each.id], known, waits), "display": displays.get(each.id)}
            for each in servers
        ]
        print(as_json(plain[0] if alone and plain else plain))
        return
    for number, each in enumerate(servers):
        print(end="\n" if number else "")
        _show_details(each, _state(each, states[each.id], waits), known, displays.get(each.id))


def _show_details(server: Server, state: str, known: Addresses, display: Vnc | None) -> None:
    hardware = server.hardware
    machine = (hardware.virt_type, hardware.firmware, hardware.machine)
    details(
        [
            ("Name", server.name),
            ("Id", server.id),
            ("State", state),
            ("Autostart", "yes" if server.autostart else "no"),
            ("Host", server.host),
            ("Image", f"{server.image.name} ({server.image.format}, {server.image.id})"),
            ("Size", size_line(server.flavor)),
            *([("Resized", resize_line(server.resized_from))] if server.resized_from else []),
            ("Machine", ", ".join(filter(None, machine))),
            *server.devices.facts(display),
            *([("Description", server.description)] if server.description else []),
            *([("Labels", format_labels(server.labels))] if server.labels else []),
            *([("Kernel", kernel_line(server.boot))] if server.boot else []),
            *((f"Disk {each.role}", disk_line(each)) for each in server.disks),
            *nic_lines(server, known),
            ("Created", server.created),
        ]
    )
