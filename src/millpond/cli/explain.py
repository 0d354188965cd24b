"""millpond explain"""

from typing import Annotated

import typer

from millpond.cli.output import as_json, details
from millpond.compute.explain import Explanation, explain
from millpond.engine import Engine
from millpond.model.sizes import format_size


def command(
    ctx: typer.Context,
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="Name, id, or beginning of it.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what would become of an image on this host, and why. Nothing is made."""
    engine = Engine.load(ctx.obj.config_files)
    found = engine.catalogue.get(image)
    choice = engine.settings.libvirt.selection.choose(found.format)
    explanation = explain(found, choice, prepared=engine.is_prepared(found.id, choice))
    print(as_json(explanation)) if json else _show(explanation)


def _show(explanation: Explanation) -> None:
    how = "as it is" if explanation.native else f"converted to {explanation.template_format}"
    there = "is there already" if explanation.template_exists else "has yet to be made"
    details(
        [
            ("Image", explanation.image),
            ("Format", f"{explanation.declared}, and its bytes are {explanation.proven}"),
            ("Backend", f"{explanation.backend}, because {explanation.reason}"),
            ("Template", f"{how}; {explanation.template} {there}"),
            ("To read", format_size(explanation.read)),
            ("To write", f"{format_size(explanation.written)} at the most"),
        ]
    )
