"""millpond server create: apart from its siblings, because it loads more than all of them."""

from pathlib import Path
from typing import Annotated

import typer

from millpond.cli import verdicts
from millpond.cli.guest_options import chosen_flavor, parse_network, read_guest_configuration
from millpond.cli.output import as_json
from millpond.cli.progress import transfer
from millpond.cli.server import Json, app, show_server
from millpond.hosts.deployment import Deployment
from millpond.model.server import Firmware
from millpond.servers import across_hosts
from millpond.servers.request import ServerRequest, planned


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
    host: Annotated[
        str,
        typer.Option(metavar="HOST", help="This host, if it is fit for it."),
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say which host it would be; no server is made.")
    ] = False,
    json: Json = False,
) -> None:
    """Create a server from an image and start it."""
    deployment = Deployment.load(ctx.obj.config_files)
    sizes = {"memory": memory, "disk": disk, "ephemeral": ephemeral, "swap": swap}
    drive = read_guest_configuration(name, ssh_key or [], user_data)
    request = ServerRequest(
        name=name,
        image=deployment.images.get(image),
        flavor=chosen_flavor(deployment.settings, flavor, vcpus, sizes),
        networks=tuple(filter(None, (parse_network(each) for each in network or ["user"]))),
        firmware=firmware,
        config_drive=drive.iso() if config_drive or drive.says_something else b"",
    )
    if dry_run:
        _show_decision(deployment, request, host, json)
        return
    size = request.image.size
    with transfer(f"template of {request.image.name}", lambda: size) as progress:
        server = across_hosts.create(deployment, request, host, start=start, progress=progress)
    show_server(deployment, server, json)


def _show_decision(deployment: Deployment, request: ServerRequest, host: str, json: bool) -> None:
    decision = across_hosts.decide(deployment, request, host)
    if decision is None:
        chosen = planned(deployment.host(host), request).host
        print(as_json({"host": chosen, "verdicts": []}) if json else f"{chosen}: the only host")
        return
    best = next(iter(decision.choices), None)
    if json:
        print(as_json({"host": best, "verdicts": verdicts.plain(decision)}))
    else:
        verdicts.show_verdicts(decision.verdicts)
    if best is None:
        raise decision.no_valid_host()
