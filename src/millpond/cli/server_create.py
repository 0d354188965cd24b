"""millpond server create: apart from its siblings, because it loads more than all of them."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.hosts import Host
from millpond.cli.progress import transfer
from millpond.cli.server import Json, app, show_server
from millpond.compute import spawn
from millpond.compute.config_drive import GuestConfiguration
from millpond.compute.request import ServerRequest, parse_network
from millpond.config import Settings
from millpond.errors import BadOption
from millpond.fleet import Fleet
from millpond.model.flavor import Flavor
from millpond.model.server import Firmware
from millpond.model.sizes import parse_size


@app.command()
def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="The new server's name.")],
    image: Annotated[str, typer.Option(help="Name or id of the image.")],
    flavor: Annotated[str, typer.Option(help="A flavour of the configuration.")] = "",
    vcpus: Annotated[int | None, typer.Option(min=1, max=1024, help="Virtual CPUs.")] = None,
    memory: Annotated[str, typer.Option(help="Such as 512M or 2G.")] = "",
    disk: Annotated[str, typer.Option(help="Root disk, such as 10G; default: the image's.")] = "",
    ephemeral: Annotated[str, typer.Option(help="A formatted disk besides, such as 5G.")] = "",
    swap: Annotated[str, typer.Option(help="A swap disk besides, such as 512M.")] = "",
    ssh_key: Annotated[
        list[Path] | None, typer.Option(help="A public key file for the guest; repeatable.")
    ] = None,
    user_data: Annotated[
        Path | None, typer.Option(help="A file for the guest's cloud-init.")
    ] = None,
    config_drive: Annotated[
        bool, typer.Option("--config-drive", help="A config drive even without keys or data.")
    ] = False,
    network: Annotated[
        list[str] | None,
        typer.Option(help="none, user, bridge:BRIDGE or a libvirt network; repeatable."),
    ] = None,
    firmware: Annotated[
        Firmware | None, typer.Option(help="Default: the image's, or bios.")
    ] = None,
    start: Annotated[bool, typer.Option("--start/--no-start", help="Start it.")] = True,
    host: Host = "",
    json: Json = False,
) -> None:
    """Create a server from an image and start it."""
    fleet = Fleet.load(ctx.obj.config_files)
    sizes = {"memory": memory, "disk": disk, "ephemeral": ephemeral, "swap": swap}
    drive = GuestConfiguration.read(name, ssh_key or [], user_data)
    request = ServerRequest(
        name=name,
        image=fleet.images.get(image),
        flavor=_flavor(fleet.settings, flavor, vcpus, sizes),
        networks=tuple(filter(None, (parse_network(each) for each in network or ["user"]))),
        firmware=firmware,
        config_drive=drive.iso() if config_drive or drive.says_something else b"",
    )
    size = request.image.size
    with transfer(f"template of {request.image.name}", lambda: size) as progress:
        server = spawn.create(fleet.engine(host).host, request, start=start, progress=progress)
    show_server(fleet, server, json)


_UNITS = {"memory": "m", "disk": "g", "ephemeral": "g", "swap": "m"}
"""What a bare number counts, as in Nova."""


def _flavor(settings: Settings, name: str, vcpus: int | None, sizes: Mapping[str, str]) -> Flavor:
    """The named one, or the default, with what was said besides."""
    if name and name not in settings.flavors:
        known = ", ".join(sorted(settings.flavors)) or "none is configured"
        raise BadOption("--flavor", f"there is no flavour {name!r}", f"known: {known}")
    flavor = settings.flavors[name] if name else Flavor()
    said = {key: parse_size(text, unit=_UNITS[key]) for key, text in sizes.items() if text}
    if said.get("memory") == 0:
        raise BadOption("--memory", "a server needs some", "write such as 512M")
    return Flavor(**(asdict(flavor) | said | {"vcpus": vcpus or flavor.vcpus}))
