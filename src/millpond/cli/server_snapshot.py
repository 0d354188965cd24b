"""millpond server snapshot: apart from its siblings, because it loads the inspection of images."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated

import typer

from millpond.cli.output import as_json, details, steps, transfer
from millpond.cli.server import Json, Name, app
from millpond.errors import BadOption, ImageNotActive, ImageNotFound, ImageRefused
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.images.intake import Intake
from millpond.images.source import TakesUploads, Upload
from millpond.model.callbacks import Progress
from millpond.model.formats import ImageFormat
from millpond.model.image import Image
from millpond.model.names import check_name
from millpond.model.server import Server
from millpond.model.sizes import format_size
from millpond.servers.snapshot import FORMATS, SnapshotRequest, extract, hardware_properties
from millpond.servers.snapshot import snapshot as make_snapshot


@app.command()
def snapshot(
    ctx: typer.Context,
    server: Name,
    name: Annotated[str, typer.Argument(help="The new image's name.")],
    format: Annotated[ImageFormat, typer.Option(help="qcow2 or raw.")] = ImageFormat.QCOW2,
    compress: Annotated[bool, typer.Option("--compress", help="A smaller qcow2.")] = False,
    json: Json = False,
) -> None:
    """Make an image of what a server's root disk holds now; the server may run, and goes on."""
    if format not in FORMATS:
        raise BadOption("--format", f"{format} is not possible", f"allowed: {', '.join(FORMATS)}")
    if compress and format is not ImageFormat.QCOW2:
        raise BadOption("--compress", f"a {format} image cannot be compressed", "use qcow2")
    request = SnapshotRequest(name=name, format=format, compress=compress)
    uploads = Deployment.load(ctx.obj.config_files).uploads
    if uploads:
        directory, source = uploads
        image = _upload(ctx, server, request, Intake(directory), source)
    else:
        with _showing(ctx, server) as (deployment, host, found, progress):
            intake = Intake(deployment.images_directory)
            told = replace(request, progress=progress)
            image = make_snapshot(host, intake, found, told)
    if json:
        print(as_json(image))
        return
    details([("Image", image.name), ("Id", image.id), ("Size", format_size(image.size))])


@contextmanager
def _showing(ctx: typer.Context, name: str) -> Iterator[tuple[Deployment, Host, Server, Progress]]:
    """The server, and whom to tell of the bytes that are copied."""
    sizes: list[int] = []  # known when the server is found
    shown = steps(f"snapshot of {name}", lambda: next(iter(sizes), None))
    with shown as (watch, progress):
        deployment = Deployment.load(ctx.obj.config_files, watch)
        host, found = deployment.find(name)
        sizes.append(found.disks[0].size)
        yield deployment, host, found, progress


def _upload(
    ctx: typer.Context, server: str, request: SnapshotRequest, intake: Intake, source: TakesUploads
) -> Image:
    """The server is free again while its image is on its way."""
    name = check_name("an image", request.name)
    with intake.arriving() as (id, part):
        with _showing(ctx, server) as (deployment, host, found, progress):
            made = extract(host, found, replace(request, progress=progress), part)
        upload = Upload(
            id=id,
            path=part,
            name=name,
            format=request.format,
            size=made.size,
            virtual_size=made.virtual_size,
            digest=made.digest,
            properties=_properties(deployment, found),
        )
        with transfer(f"uploading {name}", lambda: made.size) as sent:
            return source.upload(upload, sent)


def _properties(deployment: Deployment, server: Server) -> Mapping[str, str]:
    """Of its hardware, and of the image that it came from, if that is still there."""
    own = hardware_properties(server)
    try:
        return {**deployment.images.describe(server.image.id).properties, **own}
    except (ImageNotFound, ImageNotActive, ImageRefused):
        return own
