"""millpond image …"""

from dataclasses import asdict
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.devices import DescriptionOption, LabelFilter, LabelOption, NoLabelOption
from millpond.cli.output import as_json, details, note_new_state, table, transfer
from millpond.errors import BadInput, ImageInUse
from millpond.hosts.cache import remove_image
from millpond.hosts.deployment import Deployment
from millpond.images.intake import Intake
from millpond.model.boot_images import booted_with
from millpond.model.devices import check_description
from millpond.model.formats import ImageFormat
from millpond.model.image import DISKS, Image
from millpond.model.labels import change_labels, format_labels, parse_filter, parse_labels
from millpond.model.sizes import format_size

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="IMAGE", help="Name, id, or beginning of the id.")]
Names = Annotated[
    list[str], typer.Argument(metavar="IMAGE...", help="Names, ids, or beginnings of ids.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


_ALGORITHMS = {"sha512": "SHA-512", "sha256": "SHA-256", "md5": "MD5"}


@app.command("list")
def list_(
    ctx: typer.Context,
    format: Annotated[
        list[ImageFormat] | None, typer.Option(help="Only of this format; repeatable.")
    ] = None,
    name: Annotated[
        str, typer.Option(metavar="PATTERN", help="Only with such a name: 'debian*'.")
    ] = "*",
    label: LabelFilter = None,
    json: Json = False,
) -> None:
    """List all images, or some of them."""
    fit = parse_filter(label or ())
    deployment = Deployment.load(ctx.obj.config_files)
    note_new_state(deployment.settings.state_path)
    images = [
        each
        for each in deployment.images.all()
        if fnmatchcase(each.name, name)
        and each.format in (format or ImageFormat)
        and fit(each.labels)
    ]
    if json:
        print(as_json(images))
        return
    table(("Name", "Format", "Size", "Disk", "Id"), [_row(each) for each in images])


@app.command()
def show(ctx: typer.Context, image: Name, json: Json = False) -> None:
    """Show an image. It says also which servers were made from it."""
    deployment = Deployment.load(ctx.obj.config_files)
    show_image(deployment, deployment.images.get(image, shortened=True), json)


@app.command()
def save(
    ctx: typer.Context,
    image: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file, or a directory.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    json: Json = False,
) -> None:
    """Save a copy of an image, in its own format."""
    deployment = Deployment.load(ctx.obj.config_files)
    intake = Intake(deployment.images_directory, deployment.settings.http)
    found = intake.get(image, shortened=True)
    with transfer(f"saving {found.name}", lambda: found.size) as progress:
        saved = intake.save(found, file, force=force, progress=progress)
    print(as_json({"id": found.id, "name": found.name, "file": saved}) if json else saved)


@app.command("set")
def set_(
    ctx: typer.Context,
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="Name or whole id.")],
    description: DescriptionOption = None,
    label: LabelOption = None,
    no_label: NoLabelOption = None,
    json: Json = False,
) -> None:
    """Change the description and the labels of an image."""
    added, removed = parse_labels(label or ()), parse_labels(no_label or ())
    check_description(description or "")
    if description is None and not added and not removed:
        raise BadInput("nothing is to be changed", "add an option of 'millpond image set --help'")
    deployment = Deployment.load(ctx.obj.config_files)
    catalogue = Intake(deployment.images_directory)
    changed = catalogue.change(
        catalogue.get(image), description, lambda labels: change_labels(labels, added, removed)
    )
    if json:
        show_image(deployment, changed, json)
    else:
        print(f"changed {changed.name} ({changed.id[:8]})")


@app.command()
def rename(
    ctx: typer.Context,
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="Name or whole id.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new name.")],
    json: Json = False,
) -> None:
    """Rename an image. Its servers and templates stay its own."""
    catalogue = Intake(Deployment.load(ctx.obj.config_files).images_directory)
    found = catalogue.get(image)
    renamed = catalogue.rename(found, name)
    print(as_json(renamed) if json else f"renamed {found.name} to {renamed.name}")


@app.command()
def remove(ctx: typer.Context, images: Names, json: Json = False) -> None:
    """Remove images and their templates. What a server or another image needs stays."""
    deployment = Deployment.load(ctx.obj.config_files)
    catalogue = Intake(deployment.images_directory)
    found = [catalogue.get(each) for each in images]
    going = {image.name for image in found}
    for image in found:
        servers = deployment.image_users(image)
        needing = tuple(n for n in booted_with(catalogue.all(), image) if n not in going)
        if servers or needing:
            raise ImageInUse(image.name, servers, needing)
    for image in sorted(found, key=_is_needed):
        _remove_templates(deployment, image)
        catalogue.remove(image, partial(deployment.image_users, image))
        if not json:
            print(f"removed {image.name} ({image.id[:8]})")
    if json:
        print(as_json([{"id": each.id, "name": each.name} for each in found]))


def _is_needed(image: Image) -> tuple[bool, bool]:
    """By another one, as kernels and data disks are: those go last."""
    return not image.format.can_be_a_disk, DISKS not in image.properties


def _remove_templates(deployment: Deployment, image: Image) -> None:
    for host in deployment.hosts.values():
        remove_image(host, image)


def show_image(deployment: Deployment, image: Image, json: bool) -> None:
    users, needing = deployment.image_users(image), booted_with(deployment.images.all(), image)
    if json:
        print(as_json({**asdict(image), "servers": users, "images": needing}))
        return
    details(
        [
            ("Name", image.name),
            ("Id", image.id),
            ("Format", image.format),
            ("Size", f"{format_size(image.size)} ({image.size} bytes)"),
            ("Disk", _disk(image, f" ({image.virtual_size} bytes)")),
            (_ALGORITHMS.get(image.digest_algorithm, image.digest_algorithm), image.digest),
            *([("Index", image.index_root)] if image.index_root else []),
            *([("Bytes at", image.location)] if image.location else []),
            ("Added", image.created),
            *([("Description", image.description)] if image.description else []),
            *([("Labels", format_labels(image.labels))] if image.labels else []),
            *((f"Property {key}", value) for key, value in sorted(image.properties.items())),
            ("Servers", ", ".join(users) or "none"),
            *([("Images", ", ".join(needing))] if needing else []),
        ]
    )


def _row(image: Image) -> tuple[str, ...]:
    return (
        image.name,
        image.format,
        format_size(image.size),
        _disk(image),
        image.id,
    )


def _disk(image: Image, more: str = "") -> str:
    return f"{format_size(image.virtual_size)}{more}" if image.virtual_size else "unknown"
