"""millpond server snapshot: apart from its siblings, because it loads the inspection of images."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any

import typer

from millpond.cli.output import as_json, details, steps, transfer
from millpond.cli.server import Json, Name, app
from millpond.errors import (
    BadOption,
    ImageNotActive,
    ImageNotFound,
    ImageRefused,
    Unsupported,
)
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.images.intake import Intake
from millpond.images.publish_index import try_to_publish_index
from millpond.images.receive import examine
from millpond.images.source import TakesUploads, Upload
from millpond.model.callbacks import Progress
from millpond.model.formats import ImageFormat
from millpond.model.names import check_name
from millpond.model.operation import ROOT
from millpond.model.server import Server
from millpond.model.sizes import format_size
from millpond.records import codec
from millpond.servers.snapshot import (
    FORMATS,
    Snapshot,
    SnapshotRequest,
    extract,
    image_properties,
    kept_disks,
)
from millpond.servers.snapshot import snapshot as make_snapshot

QuiesceOption = Annotated[
    bool | None,
    typer.Option(
        "--quiesce/--no-quiesce",
        help="Insist that the guest agent freezes the file systems for the moment, or do not ask "
        "it; default: if it answers.",
    ),
]


@app.command()
def snapshot(
    ctx: typer.Context,
    server: Name,
    name: Annotated[str, typer.Argument(help="The new image's name.")],
    format: Annotated[ImageFormat, typer.Option(help="qcow2 or raw.")] = ImageFormat.QCOW2,
    compress: Annotated[bool, typer.Option("--compress", help="A smaller qcow2.")] = False,
    all_disks: Annotated[
        bool,
        typer.Option(
            "--all-disks", help="Data disks, too: an image NAME-data0 and so on for each."
        ),
    ] = False,
    quiesce: QuiesceOption = None,
    json: Json = False,
) -> None:
    """Make an image of a server's root disk. The server may run, and goes on."""
    if format not in FORMATS:
        raise BadOption("--format", f"{format} is not possible", f"allowed: {', '.join(FORMATS)}")
    if compress and format is not ImageFormat.QCOW2:
        raise BadOption("--compress", f"a {format} image cannot be compressed", "use qcow2")
    request = SnapshotRequest(
        name=name, format=format, compress=compress, all_disks=all_disks, quiesce=quiesce
    )
    uploads = Deployment.load(ctx.obj.config_files).uploads
    if uploads:
        if all_disks:
            reason = "images that belong together would go to Glance one by one"
            raise Unsupported("--all-disks", reason, "set image_source = catalogue")
        directory, source = uploads
        made = _upload(ctx, server, request, Intake(directory), source)
    else:
        with showing(ctx, server, all_disks=all_disks) as (deployment, host, found, progress):
            intake = Intake(deployment.images_directory)
            told = replace(request, progress=progress)
            made = make_snapshot(host, intake, found, told)
    if json:
        print(as_json(_plain(made, all_disks)))
        return
    for image in made.images:
        details([("Image", image.name), ("Id", image.id), ("Size", format_size(image.size))])
    details([("Taken", made.consistency)])


def _plain(made: Snapshot, all_disks: bool) -> dict[str, Any]:
    """One image, or a list of them."""
    told = {"consistency": made.consistency}
    if all_disks:
        return {"images": made.images, **told}
    return {**codec.plain(made.images[0]), **told}


@contextmanager
def showing(
    ctx: typer.Context, name: str, *, all_disks: bool, doing: str = "snapshot of"
) -> Iterator[tuple[Deployment, Host, Server, Progress]]:
    """The server, and whom to tell of the bytes that are copied."""
    sizes: list[int] = []  # known when the server is found
    shown = steps(f"{doing} {name}", lambda: next(iter(sizes), None))
    with shown as (watch, progress):
        deployment = Deployment.load(ctx.obj.config_files, watch)
        host, found = deployment.find(name)
        sizes.append(sum(each.size for each in kept_disks(found)[: None if all_disks else 1]))
        yield deployment, host, found, progress


def _upload(
    ctx: typer.Context, server: str, request: SnapshotRequest, intake: Intake, source: TakesUploads
) -> Snapshot:
    """The server is free again while its image is on its way."""
    name = check_name("an image", request.name)
    with intake.arriving() as (id, part):
        with showing(ctx, server, all_disks=False) as (deployment, host, found, progress):
            told = replace(request, progress=progress)
            consistency = extract(host, found, told, {ROOT: part})
        made = examine(part, request.format, name)
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
            uploaded = source.upload(upload, sent)
    image = try_to_publish_index(intake, source, uploaded, made.index)
    return Snapshot(images=(image,), consistency=consistency)


def _properties(deployment: Deployment, server: Server) -> Mapping[str, str]:
    """Of its hardware, and of the image that it came from, if that is still there."""
    try:
        inherited = deployment.images.describe(server.image.id).properties
    except (ImageNotFound, ImageNotActive, ImageRefused):
        inherited = {}
    return image_properties(server, server.get_disk(ROOT), inherited)
