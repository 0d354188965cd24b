"""millpond server clone, export, import: apart from their siblings, because they load the
inspection of images."""

import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from millpond.cli.hosts import HostOption
from millpond.cli.output import as_json, details, transfer
from millpond.cli.server import Json, Name, app, show_server
from millpond.cli.server_snapshot import QuiesceOption, showing
from millpond.errors import BadOption, FileNotReadable, NameTaken
from millpond.hosts.deployment import Deployment
from millpond.images.intake import Intake
from millpond.images.receive import STANDARD_INPUT as STANDARD_STREAM
from millpond.model.network_option import HELP as NETWORK_HELP
from millpond.model.network_option import PUBLISH_HELP, parse_network, publish_ports
from millpond.model.server import Firmware, Network, Server
from millpond.model.sizes import format_size
from millpond.servers.archive import ArchiveReader, Readable
from millpond.servers.copies import CloneRequest, fetching, networks_of_a_copy
from millpond.servers.copies import clone as make_clone
from millpond.servers.porting import ImportRequest, import_server
from millpond.servers.porting import export as write_archive
from millpond.system import files

NetworkOption = Annotated[
    list[str] | None, typer.Option(help=f"Instead of the networks that it was in. {NETWORK_HELP}")
]
PublishOption = Annotated[list[str] | None, typer.Option(help=PUBLISH_HELP)]
StartOption = Annotated[bool, typer.Option("--start/--no-start", help="Start it.")]


@app.command()
def clone(
    ctx: typer.Context,
    server: Name,
    name: Annotated[str, typer.Argument(help="The new server's name.")],
    network: NetworkOption = None,
    publish: PublishOption = None,
    quiesce: QuiesceOption = None,
    start: StartOption = True,
    host: HostOption = "",
    json: Json = False,
) -> None:
    """Make a new server with copies of another's disks. That one may run, and goes on."""
    shown = showing(ctx, server, all_disks=True, doing="clone of")
    with shown as (deployment, _, found, progress):
        said = _networks(networks_of_a_copy(found), network, publish)
        request = CloneRequest(name=name, networks=said, quiesce=quiesce, start=start)
        made, consistency = make_clone(deployment, found, request, host, progress)
    if json:
        show_server(deployment, made, json)
        return
    print(f"cloned {found.name} as {made.name} ({made.id}); taken: {consistency}")
    if lost := _left_out(found, addresses=True):
        print(f"not copied: {lost}")


@app.command()
def export(
    ctx: typer.Context,
    server: Name,
    target: Annotated[
        Path, typer.Argument(metavar="FILE", help="A new file; -: standard output.")
    ],
    compress: Annotated[bool, typer.Option("--compress", help="Smaller images, slower.")] = False,
    quiesce: QuiesceOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file.")] = False,
    json: Json = False,
) -> None:
    """Write a server with all its disks into one file. It may run, and goes on."""
    _check_target(target, force, json)
    with ExitStack() as stack:
        shown = showing(ctx, server, all_disks=True, doing="copy of")
        with shown as (deployment, source, found, progress):
            intake = Intake(deployment.own_images)
            content = stack.enter_context(
                fetching(
                    source, intake, found, quiesce=quiesce, compress=compress, progress=progress
                )
            )
        total = sum(each.path.stat().st_size for each in content.files.values())
        with _writing(target) as file, transfer(f"writing {target}", lambda: total) as written:
            manifest = write_archive(content, file, written)
    if lost := _left_out(found, addresses=False):
        print(f"millpond: not exported: {lost}", file=sys.stderr)
    if target == STANDARD_STREAM:
        return
    size = target.stat().st_size
    if json:
        told = {"server": found.id, "file": str(target), "size": size, "disks": manifest.disks}
        print(as_json({**told, "consistency": content.consistency}))
        return
    details(
        [
            ("Server", f"{found.name} ({found.id})"),
            ("File", str(target)),
            ("Size", format_size(size)),
            ("Taken", content.consistency),
        ]
    )


@app.command("import")
def import_(
    ctx: typer.Context,
    source: Annotated[Path, typer.Argument(metavar="FILE", help="An export; -: standard input.")],
    name: Annotated[str, typer.Option(help="Default: the name that it had.")] = "",
    new_id: Annotated[
        bool, typer.Option("--new-id", help="A new server, also if nothing here has its id.")
    ] = False,
    network: NetworkOption = None,
    publish: PublishOption = None,
    start: StartOption = True,
    host: HostOption = "",
    json: Json = False,
) -> None:
    """Make a server from an export. It has its id and its MACs again, unless they are in use."""
    deployment = Deployment.load(ctx.obj.config_files)
    with _reading(source) as file:
        reader = ArchiveReader(file, "standard input" if _is_stream(source) else str(source))
        manifest = reader.read_manifest()
        request = ImportRequest(
            name=name,
            new_id=new_id,
            choose_networks=lambda usual: _networks(usual, network, publish),
            start=start,
        )
        total = sum(each.size for each in manifest.disks)
        with transfer(f"reading {source}", lambda: total) as progress:
            made = import_server(deployment, reader, manifest, request, host, progress)
    if json:
        show_server(deployment, made, json)
        return
    new = "" if made.id == manifest.server["id"] else ", with a new id"
    print(f"imported {made.name} ({made.id}){new}")


def _networks(
    usual: tuple[Network, ...], said: list[str] | None, publish: list[str] | None
) -> tuple[Network, ...]:
    if said is not None:
        usual = tuple(filter(None, (parse_network(each) for each in said)))
    return publish_ports(usual, publish) if publish else usual


def _left_out(server: Server, *, addresses: bool) -> str:
    """What only one server can have, for people; its ``addresses`` if there are two from now
    on."""
    vnc = server.devices.vnc
    ports = [str(each) for network in server.networks for each in network.ports]
    fixed = [each.address for each in server.networks if each.address and addresses]
    found = (
        ("published ports", ", ".join(ports)),
        ("fixed addresses", ", ".join(fixed)),
        ("the VNC port", str(vnc.port) if vnc and vnc.port else ""),
        ("the medium in the CD-ROM drive", server.cdrom and server.cdrom.image),
        ("UEFI variables", server.hardware.firmware is Firmware.UEFI),
        ("the TPM's state", server.devices.tpm),
    )
    return "; ".join(
        f"{what} ({value})" if isinstance(value, str) else what for what, value in found if value
    )


def _is_stream(path: Path) -> bool:
    return path == STANDARD_STREAM


def _check_target(target: Path, force: bool, json: bool) -> None:
    if _is_stream(target):
        if sys.stdout.isatty():
            raise BadOption("FILE", "an archive is not for a terminal", "lead it into a pipe")
        if json:
            raise BadOption("--json", "standard output has the archive", "write it to a file")
    elif target.is_dir():
        raise BadOption("FILE", f"{target} is a directory", "write the name of a file")
    elif target.exists() and not target.is_file():
        raise BadOption("FILE", f"{target} is no regular file", "write the name of a new file")
    elif target.exists() and not force:
        raise NameTaken("a file", str(target))
    elif not os.access(target.parent, os.W_OK | os.X_OK):
        reason = f"it cannot be written: {target.parent} is not there, or not yours"
        raise BadOption(str(target), reason, "choose another place")


@contextmanager
def _writing(target: Path) -> Iterator[BinaryIO]:
    """A file that is there only when it is whole. It holds what the guest's disks hold: it is its
    owner's alone."""
    part = target.with_name(f".{uuid.uuid4()}")
    try:
        if _is_stream(target):
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
            return
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            yield file
            file.flush()
            files.sync(file.fileno())
        os.rename(part, target)
        files.sync_directory(target.parent)
    except OSError as error:
        if _is_stream(target):  # what Python holds for it goes nowhere when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        reason = f"it cannot be written: {error.strerror or error}"
        raise BadOption(str(target), reason, "choose another place") from error
    finally:
        with suppress(OSError):
            files.remove(part)


@contextmanager
def _reading(source: Path) -> Iterator[Readable]:
    if _is_stream(source):
        yield files.Pipe(sys.stdin.fileno())
        return
    try:
        file = source.open("rb")
    except OSError as error:
        raise FileNotReadable(source, error.strerror or str(error)) from error
    with file:
        yield file
