"""millpond server create: apart from its siblings, because it loads more than all of them."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from millpond.cli import verdicts
from millpond.cli.devices import (
    CpuOption,
    DescriptionOption,
    LabelOption,
    MaxMemoryOption,
    MaxVcpusOption,
    SecureBootOption,
    TpmOption,
    VideoOption,
    VncOption,
)
from millpond.cli.hosts import HostOption
from millpond.cli.output import as_json, complain, transfer
from millpond.cli.server import Json, app, show_all
from millpond.cli.waiting import PATIENCE, WaitOption, WaitTimeoutOption, wait_and_tell
from millpond.errors import BadOption, FileNotReadable, GuestProblem
from millpond.hosts.deployment import Deployment
from millpond.model.boot_images import find_disk_images
from millpond.model.callbacks import Progress
from millpond.model.devices import Devices, check_description, parse_devices
from millpond.model.flavors import choose_flavor, with_maximum
from millpond.model.formats import ImageFormat
from millpond.model.labels import parse_labels
from millpond.model.names import ImageId
from millpond.model.network_option import HELP as NETWORK_HELP
from millpond.model.network_option import PUBLISH_HELP, parse_network, publish_ports
from millpond.model.server import Firmware, Server
from millpond.servers import across_hosts
from millpond.servers.config_drive import GuestConfiguration, host_name
from millpond.servers.create import ServerRequest, plan_server
from millpond.servers.several import NotCreated, create_each, number_requests

_USER_DATA_LIMIT = 64 * 1024  # Nova's limit before encoding; a larger one belongs on a web server


@app.command()
def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="The new server's name.")],
    image: Annotated[str, typer.Option(help="Name or id of the image.")] = "",
    iso: Annotated[
        str, typer.Option(help="An ISO image to install from, onto a blank root disk of --disk.")
    ] = "",
    flavor: Annotated[str, typer.Option(help="A flavour of the configuration.")] = "",
    vcpus: Annotated[int | None, typer.Option(min=1, max=1024, help="Virtual CPUs.")] = None,
    memory: Annotated[str, typer.Option(help="Such as 512M or 2G.")] = "",
    max_vcpus: MaxVcpusOption = None,
    max_memory: MaxMemoryOption = "",
    disk: Annotated[str, typer.Option(help="Root disk, such as 10G; default: the image's.")] = "",
    ephemeral: Annotated[str, typer.Option(help="A formatted disk besides, such as 5G.")] = "",
    swap: Annotated[str, typer.Option(help="A swap disk besides, such as 512M.")] = "",
    ssh_key: Annotated[
        list[Path] | None, typer.Option(help="A public key file for the guest; repeatable.")
    ] = None,
    user_data: Annotated[
        Path | None, typer.Option(help="A file for the guest's cloud-init.")
    ] = None,
    hostname: Annotated[str, typer.Option(help="Of the guest; default: the server's name.")] = "",
    config_drive: Annotated[
        bool,
        typer.Option(
            "--config-drive/--no-config-drive", help="What cloud-init in the guest reads."
        ),
    ] = True,
    network: Annotated[
        list[str] | None,
        typer.Option(help=NETWORK_HELP),
    ] = None,
    publish: Annotated[list[str] | None, typer.Option(help=PUBLISH_HELP)] = None,
    firmware: Annotated[
        Firmware | None, typer.Option(help="Default: the image's, or bios.")
    ] = None,
    vnc: VncOption = "",
    cpu: CpuOption = "",
    video: VideoOption = "",
    tpm: TpmOption = None,
    secure_boot: SecureBootOption = None,
    description: DescriptionOption = None,
    label: LabelOption = None,
    start: Annotated[bool, typer.Option("--start/--no-start", help="Start it.")] = True,
    wait: WaitOption = False,
    wait_timeout: WaitTimeoutOption = PATIENCE,
    host: HostOption = "",
    force: Annotated[
        bool, typer.Option("--force", help="Take an ISO image as the root disk itself.")
    ] = False,
    count: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="So many alike, named NAME-1, NAME-2 and so on."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say which host it would be; no server is made.")
    ] = False,
    json: Json = False,
) -> None:
    """Create a server from an image or an ISO, or several. They are started, unless told
    otherwise."""
    if bool(image) == bool(iso):
        raise BadOption("--image", "a server is made from one image", "say --image or --iso")
    if wait and not start:
        raise BadOption("--wait", "a server that is not started has no guest", "leave one out")
    if dry_run and count:
        raise BadOption("--count", "--dry-run is for one server", "leave one out")
    deployment = Deployment.load(ctx.obj.config_files)
    sizes = {"memory": memory, "disk": disk, "ephemeral": ephemeral, "swap": swap}
    guest = _read_guest_configuration(ssh_key or [], user_data, hostname)
    if not config_drive and guest != GuestConfiguration():
        raise BadOption("--no-config-drive", "keys and data are on it", "leave one of them out")
    networks = tuple(filter(None, (parse_network(each) for each in network or ["user"])))
    found = deployment.images.get(image or iso)
    others = find_disk_images(
        found.properties, lambda each: deployment.images.describe(ImageId(each))
    )
    request = ServerRequest(
        name=name,
        image=found,
        disks={} if iso else others,
        installs=bool(iso),
        flavor=with_maximum(
            choose_flavor(deployment.settings.flavors, flavor, vcpus, sizes), max_vcpus, max_memory
        ),
        networks=publish_ports(networks, publish or []),
        firmware=firmware,
        guest=guest if config_drive else None,
        devices=Devices(
            **parse_devices(vnc=vnc, cpu=cpu, video=video, tpm=tpm, secure_boot=secure_boot)
        ),
        description=check_description(description or ""),
        labels=parse_labels(label) if label else {},
    )
    _check_iso(request, force)
    if dry_run:
        _show_decision(deployment, request, host, json)
        return
    size = request.image.size
    with transfer(f"template of {request.image.name}", lambda: size) as progress:
        create_one = partial(_create, deployment, host=host, start=start, progress=progress)
        made, failed = _create_all(deployment, request, count, create_one)
    problems = [_wait(deployment, each, wait_timeout) for each in made] if wait else []
    show_all(deployment, made, json, alone=count is None)
    for problem in filter(None, problems):
        raise problem
    raise typer.Exit(failed)


def _create(
    deployment: Deployment, request: ServerRequest, *, host: str, start: bool, progress: Progress
) -> Server:
    return across_hosts.create(deployment, request, host, start=start, progress=progress)


def _create_all(
    deployment: Deployment,
    request: ServerRequest,
    count: int | None,
    create_one: Callable[[ServerRequest], Server],
) -> tuple[list[Server], int]:
    """Those that were made, and the exit status: that of the first error."""
    if count is None:
        return [create_one(request)], 0
    made, status = [], 0
    requests = number_requests(request, count)
    for each in create_each(deployment.records, requests, create_one):
        if isinstance(each, NotCreated):
            print(f"{each.name} was not created:", file=sys.stderr)
            complain(each.error)
            status = status or each.error.exit_code
        else:
            made.append(each)
    return made, status


def _wait(deployment: Deployment, server: Server, seconds: float) -> GuestProblem | None:
    """The server is made, and is shown, whatever its guest does."""
    try:
        wait_and_tell(deployment.host_of(server), server, seconds)
    except GuestProblem as error:
        return error
    return None


def _check_iso(request: ServerRequest, force: bool) -> None:
    image = request.image
    is_iso = image.format is ImageFormat.ISO
    if request.installs and not is_iso:
        reason = f"{image.name!r} is a {image.format} image, and no ISO"
        raise BadOption("--iso", reason, f"use --image {image.name}")
    if request.installs and not request.flavor.disk:
        raise BadOption("--iso", "the root disk needs a size", "say it, such as --disk 20G")
    if is_iso and not request.installs and not force:
        reason = f"{image.name!r} is an ISO image, and would be the writable root disk itself"
        advised = f"use --iso {image.name} --disk 20G; --force if it is a disk that boots as it is"
        raise BadOption("--image", reason, advised)


def _show_decision(deployment: Deployment, request: ServerRequest, host: str, json: bool) -> None:
    decision = across_hosts.decide(deployment, request, host)
    if decision is None:
        chosen = plan_server(deployment.host(host), request).host
        print(as_json({"host": chosen, "verdicts": []}) if json else f"{chosen}: the only host")
        return
    best = next(iter(decision.choices), None)
    if json:
        print(as_json({"host": best, "verdicts": verdicts.plain(decision)}))
    else:
        verdicts.show_verdicts(decision.verdicts)
    if best is None:
        raise decision.no_valid_host()


def _read_guest_configuration(
    keys: Sequence[Path], user_data: Path | None, hostname: str
) -> GuestConfiguration:
    content = _read(user_data) if user_data else b""
    if len(content) > _USER_DATA_LIMIT:
        limit = f"{_USER_DATA_LIMIT // 1024} KiB"
        raise BadOption("--user-data", f"{user_data} is larger than {limit}", "shorten it")
    if hostname and host_name(hostname) != hostname.lower():
        advised = f"write such as {host_name(hostname)}"
        raise BadOption("--hostname", f"{hostname!r} cannot be the name of a host", advised)
    return GuestConfiguration(
        hostname=hostname, keys=tuple(_read_public_key(each) for each in keys), user_data=content
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileNotReadable(path, error.strerror or str(error)) from error


def _read_public_key(path: Path) -> str:
    text = _read(path).decode(errors="replace").strip()
    if "PRIVATE KEY" in text:
        raise BadOption("--ssh-key", f"{path} is a private key", f"give {path}.pub")
    if not text.startswith(("ssh-", "ecdsa-", "sk-")):
        raise BadOption("--ssh-key", f"{path} holds no public key", "give the file ending in .pub")
    return text
