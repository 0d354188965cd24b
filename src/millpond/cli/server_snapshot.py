"""millpond server snapshot: apart from its siblings, because it loads the inspection of images."""

from typing import Annotated

import typer

from millpond.cli.output import as_json, details
from millpond.cli.progress import steps
from millpond.cli.server import Json, Name, app
from millpond.compute.snapshot import FORMATS, SnapshotRequest
from millpond.compute.snapshot import snapshot as make_snapshot
from millpond.errors import BadOption
from millpond.fleet import Fleet
from millpond.images.intake import Intake
from millpond.model.formats import ImageFormat
from millpond.model.sizes import format_size


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
    request = SnapshotRequest(name=name, format=format, compress=compress)
    with steps(f"snapshot of {server}") as watch:
        fleet = Fleet.load(ctx.obj.config_files, watch)
        engine, found = fleet.find(server)
        image = make_snapshot(engine.host, Intake(fleet.images_directory), found, request)
    if json:
        print(as_json(image))
        return
    details([("Image", image.name), ("Id", image.id), ("Size", format_size(image.size))])
