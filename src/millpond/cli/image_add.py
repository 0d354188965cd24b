"""millpond image add: apart from its siblings, because it loads an HTTP client."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from millpond.cli.image import Json, app, show_image
from millpond.cli.output import transfer
from millpond.errors import BadOption, FileNotReadable
from millpond.hosts.deployment import Deployment
from millpond.images.index import Index
from millpond.images.index_file import LONGEST, parse_index_file
from millpond.images.intake import Intake
from millpond.images.refer import fetch_index, look
from millpond.images.source import Stream
from millpond.images.suffixes import format_elsewhere, name_elsewhere, stated_packing
from millpond.model.formats import ImageFormat
from millpond.model.image import Image
from millpond.model.image_properties import check_properties
from millpond.model.transfer import Digest, Patience
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
    stream: Annotated[
        bool,
        typer.Option("--stream", help="Leave the bytes at the URL; servers start as they come."),
    ] = False,
    index: Annotated[
        str,
        typer.Option(metavar="FILE|URL", help="With --stream. Default: the URL and '.index'."),
    ] = "",
    index_root: Annotated[
        str, typer.Option(metavar="HEX", help="With --stream: the root that its publisher states.")
    ] = "",
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="KEY=VALUE", help="As Glance names it; repeatable."),
    ] = None,
    json: Json = False,
) -> None:
    """Add an image from a file or from the web. Its content is inspected."""
    _check_stream(source, IndexOptions(stream=stream, index=index, root=index_root))
    deployment = Deployment.load(ctx.obj.config_files)
    said = dict(_property(each) for each in properties or ())
    check_properties(said)
    with _naming_flags():
        expected = Digest.parse(digest) if digest else None
        if stream:
            options = IndexOptions(stream=True, index=index, root=index_root)
            image = _refer(deployment, source, (name, disk_format, expected), options, said)
        elif _is_url(source):
            image = _fetch_url(deployment, source, (name, disk_format, expected), said)
        elif scheme := _SCHEME.match(source):
            reason = f"{scheme[0]} is not fetched"
            raise BadOption("FILE|URL", reason, "http:// and https:// are; download it first")
        else:
            image = _add_file(deployment, Path(source), (name, disk_format, expected), said)
    show_image(deployment, image, json)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOptions:
    stream: bool
    index: str
    root: str


def _is_url(text: str) -> bool:
    return text.lower().startswith(("http://", "https://"))


def _check_stream(source: str, options: IndexOptions) -> None:
    if not options.stream:
        for flag, value in (("--index", options.index), ("--index-root", options.root)):
            if value:
                raise BadOption(flag, "it is for --stream", "add --stream, or leave it out")
        return
    if not _is_url(source):
        raise BadOption("--stream", "only what is at a URL is streamed", "leave it out")
    if options.root and not re.fullmatch("[0-9a-fA-F]{64}", options.root):
        reason = f"{options.root!r} is not a SHA-256 in hexadecimal"
        raise BadOption("--index-root", reason, "'millpond image index FILE' prints it")
    if not options.root and (not options.index or _is_url(options.index)):
        reason = "whoever can change an index that is fetched can change the image"
        advised = "state the root that its publisher prints, or a file: --index FILE"
        raise BadOption("--index-root", reason, advised)


def _refer(
    deployment: Deployment,
    url: str,
    declared: tuple[str, ImageFormat | None, Digest | None],
    options: IndexOptions,
    properties: Mapping[str, str],
) -> Image:
    name, format, stated = declared
    patience = deployment.settings.http
    resource = Resource(url, patience)
    format = format or format_elsewhere(resource.name)
    if packing := stated_packing(resource.name, format):
        reason = f"it is packed ({packing}), and parts of that are no parts of the image"
        raise BadOption("--stream", reason, "leave it out, or publish the image unpacked")
    index, digest = _read_index(url, options, patience)
    if stated and stated != Digest(algorithm="sha512", value=digest):
        reason = f"the index is of an image whose SHA-512 is {digest}"
        raise BadOption("--digest", reason, "state that one, or leave it out")
    catalogue = Intake(deployment.images_directory, patience)
    found = look(url, resource, (name or name_elsewhere(resource.name), format), index, digest)
    return catalogue.refer(found, properties=properties)


def _read_index(url: str, options: IndexOptions, patience: Patience) -> tuple[Index, str]:
    """And the SHA-512 that it states."""
    place = options.index or _next_to(url)
    if _is_url(place):
        content = fetch_index(Resource(place, patience), LONGEST)
    else:
        content = _read_file(Path(place))
    index, digest = parse_index_file(content, "--index")
    if options.root and index.root != options.root.lower():
        reason = f"the root of the index is {index.root}"
        raise BadOption("--index-root", reason, "ask its publisher for the index of this image")
    return index, digest


def _next_to(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(path=f"{parts.path}.index").geturl()


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileNotReadable(path, error.strerror or str(error)) from error


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
