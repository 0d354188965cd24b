"""millpond explain"""

from typing import Annotated

import typer

from millpond.cli.output import as_json, details
from millpond.compute.explain import BootFile, Explanation, Prospects, explain
from millpond.engine import Engine
from millpond.images.boot_images import find_boot_images
from millpond.model.sizes import format_size


def command(
    ctx: typer.Context,
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="Name, id, or beginning of it.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what would become of an image on this host, and why. Nothing is made."""
    engine = Engine.load(ctx.obj.config_files)
    found = engine.images.get(image)
    boot = find_boot_images(found.format, found.properties, engine.images.get)
    selection = engine.settings.libvirt.selection
    prospects = Prospects(
        is_prepared=engine.cache.has,
        outlook=engine.cache.outlook,
        is_local=engine.images.local_file(found) is not None,
    )
    explanation = explain(found, boot, selection, prospects)
    print(as_json(explanation)) if json else _show(explanation)


def _show(explanation: Explanation) -> None:
    how = _how(explanation)
    details(
        [
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
