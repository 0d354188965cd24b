"""millpond image index and publish-index: apart from their siblings, because they load what
inspects images."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.image import Json, Name, app, show_image
from millpond.cli.output import as_json, details, transfer
from millpond.errors import BadOption, FileNotReadable, NameTaken
from millpond.hosts.deployment import Deployment
from millpond.images.index import make_index
from millpond.images.index_file import format_index_file
from millpond.images.intake import Intake
from millpond.images.publish_index import index_image
from millpond.images.receive import opening
from millpond.system import files


@app.command()
def index(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The image, as it is published.")],
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Default: the image's name and '.index'.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the index.")] = False,
    json: Json = False,
) -> None:
    """Index a file for 'image add --stream'. Publish both in the web; the root that it prints
    proves the index."""
    target = output or file.with_name(f"{file.name}.index")
    if target.exists() and not force:
        raise NameTaken("a file", str(target))
    whole = hashlib.sha512()
    with opening(file) as source:
        found = make_index(_pieces(source, file, whole.update))
    if not found.size:
        raise BadOption(str(file), "it is empty", "index the image itself")
    content = format_index_file(found, whole.hexdigest())
    try:
        files.write_atomically(target, content, 0o644)
    except OSError as error:
        reason = f"it cannot be written: {error.strerror or error}"
        raise BadOption(str(target), reason, "choose another place: --output FILE") from error
    if json:
        said = {"file": target, "root": found.root, "size": found.size}
        print(as_json({**said, "sha512": whole.hexdigest()}))
        return
    details([("Index", str(target)), ("Root", found.root), ("SHA-512", whole.hexdigest())])


def _pieces(source: int, path: Path, eat: Callable[[bytes], None]) -> Iterator[bytes]:
    try:
        while piece := files.read(source, files.CHUNK):
            eat(piece)
            yield piece
    except OSError as error:
        raise FileNotReadable(path, error.strerror or str(error)) from error


@app.command("publish-index")
def publish_index(ctx: typer.Context, image: Name, json: Json = False) -> None:
    """Index an image that has no index. In Glance, publish it as properties of the image."""
    deployment = Deployment.load(ctx.obj.config_files)
    found = deployment.images.get(image, shortened=True)
    with transfer(f"reading {found.name}", lambda: found.size) as progress:
        indexed = index_image(Intake(deployment.own_images), deployment.images, found, progress)
    show_image(deployment, indexed, json)
