"""millpond server …"""

import sys
from typing import Annotated

import typer

from millpond.cli import console as terminal
from millpond.cli.output import as_json, complain, details, table
from millpond.errors import BadOption, NoConsole
from millpond.hosts.deployment import Deployment
from millpond.model.server import DirectBoot, Disk, Server
from millpond.model.sizes import format_size, parse_size
from millpond.records import codec
from millpond.servers import across_hosts, data_disks, grow, power

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

disks = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(disks, name="disk", help="Add, remove and grow the disks of a server.")

Name = Annotated[str, typer.Argument(metavar="SERVER", help="Name, id, or beginning of the id.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Role = Annotated[str, typer.Argument(metavar="DISK", help="As 'server show' names it.")]
PATIENCE = 60.0
"""Seconds that a guest has to power itself off; Nova's shutdown_timeout."""


@app.command("list")
def list_(ctx: typer.Context, json: Json = False) -> None:
    """List all servers."""
    deployment = Deployment.load(ctx.obj.config_files)
    servers, damaged = deployment.records.readable()
    states = across_hosts.states(deployment, servers)
    for each in damaged:
        complain(each)
    if json:
        print(as_json([_describe(each, states[each.id]) for each in servers]))
        return
    where = ["Host"] if deployment.has_several else []
    table(
        ("Name", "State", *where, "Image", "Backend", "Disk", "Id"),
        [_row(each, states[each.id], [each.host] if where else []) for each in servers],
    )


@app.command()
def show(ctx: typer.Context, server: Name, json: Json = False) -> None:
    """Show all that is known of a server."""
    deployment = Deployment.load(ctx.obj.config_files)
    show_server(deployment, deployment.server(server), json)


@app.command()
def console(
    ctx: typer.Context,
    server: Name,
    log: Annotated[bool, typer.Option("--log", help="Print what it printed so far.")] = False,
) -> None:
    """Open the server's serial console (leave with Ctrl-]), or print its log."""
    host, found = Deployment.load(ctx.obj.config_files).find(server)
    if log:
        sys.stdout.buffer.write(host.consoles.read(found.id, found.name))
        return
    if host.domains.state(found.id) != "running":
        raise NoConsole(found.name, "it is not running")
    print(f"Console of {found.name}; leave with Ctrl-]", file=sys.stderr)
    terminal.attach(host.domains.open_console(found.id))


@app.command()
def start(ctx: typer.Context, server: Name) -> None:
    """Start a server that is stopped; its domain is defined anew from its record."""
    host, found = Deployment.load(ctx.obj.config_files).find(server)
    power.start(host, found)


@app.command()
def stop(
    ctx: typer.Context,
    server: Name,
    force: Annotated[bool, typer.Option("--force", help="Pull the plug at once.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the guest.")] = PATIENCE,
) -> None:
    """Stop a server: ask the guest, and pull the plug if it does not follow."""
    host, found = Deployment.load(ctx.obj.config_files).find(server)
    if not power.stop(host, found, patience=0 if force else timeout) and not force:
        print(f"{found.name} did not power off within {timeout:g} s: plug pulled", file=sys.stderr)


@app.command()
def reboot(
    ctx: typer.Context,
    server: Name,
    hard: Annotated[bool, typer.Option("--hard", help="Do not ask the guest.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the guest.")] = PATIENCE,
) -> None:
    """Reboot a server: off and on again, with its domain defined anew from its record."""
    host, found = Deployment.load(ctx.obj.config_files).find(server)
    power.reboot(host, found, patience=0 if hard else timeout)


@app.command()
def resize(
    ctx: typer.Context,
    server: Name,
    disk: Annotated[str, typer.Option(help="The root disk's new size, such as 20G.")],
    json: Json = False,
) -> None:
    """Make a server's root disk larger, also while it runs (but for ploop disks)."""
    deployment = Deployment.load(ctx.obj.config_files)
    host, found = deployment.find(server)
    grown = grow.grow(host, found, "disk", parse_size(disk, unit="g"))
    if json:
        show_server(deployment, grown, json)


@disks.command("add")
def add_disk(
    ctx: typer.Context,
    server: Name,
    size: Annotated[str, typer.Option(help="Such as 10G.")],
    json: Json = False,
) -> None:
    """Add an empty disk, also while the server runs."""
    host, found = Deployment.load(ctx.obj.config_files).find(server)
    if (wanted := parse_size(size, unit="g")) == 0:
        raise BadOption("--size", "a disk needs some", "write such as 10G")
    made = data_disks.add(host, found, wanted)
    print(as_json(made) if json else f"{made.role} ({made.target})")


@disks.command("remove")
def remove_disk(ctx: typer.Context, server: Name, disk: Role, json: Json = False) -> None:
    """Remove a data disk and what is on it, also while the server runs."""
    deployment = Deployment.load(ctx.obj.config_files)
    host, found = deployment.find(server)
    data_disks.remove(host, found, disk)
    if json:
        show_server(deployment, deployment.server(found.id), json)


@disks.command("grow")
def grow_disk(
    ctx: typer.Context,
    server: Name,
    disk: Role,
    size: Annotated[str, typer.Option(help="The new size, such as 20G.")],
    json: Json = False,
) -> None:
    """Make a disk larger, also while the server runs (but for ploop disks)."""
    host, found = Deployment.load(ctx.obj.config_files).find(server)
    grown = grow.grow(host, found, disk, parse_size(size, unit="g"))
    if json:
        print(as_json(grown.get_disk(disk)))


@app.command()
def delete(
    ctx: typer.Context,
    servers: Annotated[list[str], typer.Argument(metavar="SERVER...", help="Names or ids.")],
    force: Annotated[
        bool, typer.Option("--force", help="Leave behind what cannot be reached.")
    ] = False,
) -> None:
    """Delete servers and their disks."""
    deployment = Deployment.load(ctx.obj.config_files)
    for found in [deployment.server(each) for each in servers]:
        across_hosts.delete(deployment, found.id, force=force)


def _row(server: Server, state: str, where: list[str]) -> tuple[str, ...]:
    root = server.find_disk()
    return (
        server.name,
        state,
        *where,
        server.image.name,
        root.backend if root else "",
        format_size(root.size) if root else "",
        server.id,
    )


def _describe(server: Server, state: str) -> dict[str, object]:
    return {"state": state, **codec.plain_server(server)}


def show_server(deployment: Deployment, server: Server, json: bool) -> None:
    state = across_hosts.states(deployment, [server])[server.id]
    if json:
        print(as_json(_describe(server, state)))
        return
    hardware, flavor = server.hardware, server.flavor
    machine = (hardware.virt_type, hardware.firmware, hardware.machine)
    details(
        [
            ("Name", server.name),
            ("Id", server.id),
            ("State", state),
            ("Host", server.host),
            ("Image", f"{server.image.name} ({server.image.format}, {server.image.id})"),
            ("Size", f"{flavor.vcpus} vCPU, {format_size(flavor.memory)} memory"),
            ("Machine", ", ".join(filter(None, machine))),
            *([("Kernel", _kernel_line(server.boot))] if server.boot else []),
            *((f"Disk {each.role}", _disk_line(each)) for each in server.disks),
            ("Networks", _networks(server)),
            ("Created", server.created),
        ]
    )


def _kernel_line(boot: DirectBoot) -> str:
    ramdisk = f" and {boot.ramdisk.name}" if boot.ramdisk else ""
    return f"{boot.kernel.name}{ramdisk}: {boot.command_line}"


def _networks(server: Server) -> str:
    return ", ".join(each.source or each.kind for each in server.networks) or "none"


def _disk_line(disk: Disk) -> str:
    line = f"{format_size(disk.size)} {disk.format} by {disk.backend}: {disk.location}"
    if disk.template is None:
        return line
    how = "standing on" if disk.overlay else "made from"
    return f"{line}, {how} {disk.template.pool}/{disk.template.volume} ({disk.template.format})"
