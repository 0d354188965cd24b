"""millpond explain"""

from dataclasses import replace
from typing import Annotated

import typer

from millpond.cli.hosts import Hosts
from millpond.cli.output import as_json, details
from millpond.compute.explain import BootFile, Explanation, Prospects, explain
from millpond.engine import Engine
from millpond.fleet import Fleet
from millpond.images.boot_images import find_boot_images
from millpond.model.image import Image
from millpond.model.sizes import format_size


def command(
    ctx: typer.Context,
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="Name, id, or beginning of it.")],
    host: Hosts = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what would become of an image on each host, and why. Nothing is made."""
    fleet = Fleet.load(ctx.obj.config_files)
    found = fleet.images.get(image)
    explained = [_explained(engine, found) for engine in fleet.chosen(host)]
    if json:
        print(as_json(explained))
        return
    for number, each in enumerate(explained):
        if number:
            print()
        _show(each, [("Host", each.host)] if fleet.has_several else [])


def _explained(engine: Engine, image: Image) -> Explanation:
    boot = find_boot_images(image.format, image.properties, engine.images.get)
    prospects = Prospects(
        is_prepared=engine.cache.has,
        outlook=engine.cache.outlook,
        is_local=engine.images.local_file(image) is not None,
    )
    selection = engine.settings.libvirt.selection
    return replace(explain(image, boot, selection, prospects), host=engine.name)


def _show(explanation: Explanation, where: list[tuple[str, str]]) -> None:
    how = _how(explanation)
    details(
        [
            *where,
            ("Image", explanation.image),
            ("Format", f"{explanation.declared}, and its bytes are {explanation.proven}"),
            ("Backend", f"{explanation.backend}, because {explanation.reason}"),
            ("Template", f"{how}; {_there(explanation)}"),
            ("To read", f"{format_size(explanation.read)}, once for all disks"),
            ("To write", f"{format_size(explanation.written)} at the most, once for all disks"),
            *((each.content.capitalize(), _copied(each)) for each in explanation.boot),
        ]
    )


def _how(explanation: Explanation) -> str:
    if explanation.location:
        return f"linked to {explanation.location}"
    how = "as it is" if explanation.native else f"converted to {explanation.template_format}"
    because = f", downloaded, because {explanation.not_linked}" if explanation.not_linked else ""
    return how + because


def _copied(file: BootFile) -> str:
    return f"a copy of {file.image} ({format_size(file.size)}) for each server; {_there(file)}"


def _there(made: Explanation | BootFile) -> str:
    how = "is there already" if made.template_exists else "has yet to be made"
    return f"{made.template} {how}"
