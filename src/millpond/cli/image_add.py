"""millpond image add: apart from its siblings, because it loads an HTTP client."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.image import Json, app, show_image
from millpond.cli.output import transfer
from millpond.errors import BadOption
from millpond.hosts.deployment import Deployment
from millpond.images.intake import Intake
from millpond.images.source import Stream
from millpond.images.suffixes import format_elsewhere, name_elsewhere, stated_packing
from millpond.model.formats import ImageFormat
from millpond.model.image import Image
from millpond.model.image_properties import check_properties
from millpond.model.transfer import Digest
from millpond.system.http import Resource

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_FLAGS = {"name": "--name", "disk_format": "--disk-format", "digest": "--digest"}


@app.command()
def add(
    ctx: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE|URL",
            help="Or a ploop directory; '-' reads standard input; http:// and https:// fetch.",
        ),
    ],
    name: Annotated[str, typer.Option(help="Default: the file's name.")] = "",
    disk_format: Annotated[
        ImageFormat | None, typer.Option(help="Default: what the file's suffix says.")
    ] = None,
    digest: Annotated[
        str,
        typer.Option(metavar="sha256:HEX", help="Of the published bytes; or sha384, sha512."),
    ] = "",
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="KEY=VALUE", help="As Glance names it; repeatable."),
    ] = None,
    json: Json = False,
) -> None:
    """Add an image from a file or from the web. Its content is inspected."""
    deployment = Deployment.load(ctx.obj.config_files)
    said = dict(_property(each) for each in properties or ())
    check_properties(said)
    with _naming_flags():
        expected = Digest.parse(digest) if digest else None
        if source.lower().startswith(("http://", "https://")):
            image = _fetch_url(deployment, source, (name, disk_format, expected), said)
        elif scheme := _SCHEME.match(source):
            reason = f"{scheme[0]} is not fetched"
            raise BadOption("FILE|URL", reason, "http:// and https:// are; download it first")
        else:
            image = _add_file(deployment, Path(source), (name, disk_format, expected), said)
    show_image(deployment, image, json)


@contextmanager
def _naming_flags() -> Iterator[None]:
    """What is wrong with a property of the image is wrong with the option that states it."""
    try:
        yield
    except BadOption as error:
        if error.option not in _FLAGS:
            raise
        raise BadOption(_FLAGS[error.option], error.reason, error.advised) from error


def _add_file(
    deployment: Deployment,
    file: Path,
    declared: tuple[str, ImageFormat | None, Digest | None],
    properties: Mapping[str, str],
) -> Image:
    name, format, digest = declared
    with transfer(f"adding {name or file.name}", lambda: _length(file)) as progress:
        return Intake(deployment.images_directory).add(
            file,
            name=name or None,
            format=format,
            digest=digest,
            properties=properties,
            progress=progress,
        )


def _fetch_url(
    deployment: Deployment,
    url: str,
    declared: tuple[str, ImageFormat | None, Digest | None],
    properties: Mapping[str, str],
) -> Image:
    name, format, digest = declared
    patience = deployment.settings.http
    resource = Resource(url, patience)
    stream = Stream(
        chunks=resource.chunks,
        retries=patience.retries,
        digest=digest,
        length=lambda: resource.size,
        has_end=lambda: resource.has_end,
    )
    format = format or format_elsewhere(resource.name)
    with transfer(f"fetching {name or resource.name}", lambda: resource.size) as progress:
        return Intake(deployment.images_directory).fetch(
            stream,
            name=name or name_elsewhere(resource.name),
            format=format,
            packing=stated_packing(resource.name, format),
            properties=properties,
            progress=progress,
        )


def _property(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key.strip() or not equals:
        raise BadOption(
            "--property", f"{text!r} is not KEY=VALUE", "write hw_disk_bus=virtio, say"
        )
    return key.strip(), value.strip()


def _length(file: Path) -> int | None:
    """Unknown of a pipe, and of what is not there."""
    return file.stat().st_size if os.path.isfile(file) else None
