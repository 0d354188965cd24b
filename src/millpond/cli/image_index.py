"""millpond image publish-index: apart from its siblings, because it loads what inspects images."""

import typer

from millpond.cli.image import Json, Name, app, show_image
from millpond.cli.output import transfer
from millpond.hosts.deployment import Deployment
from millpond.images.intake import Intake
from millpond.images.publish_index import index_image


@app.command("publish-index")
def publish_index(ctx: typer.Context, image: Name, json: Json = False) -> None:
    """Index an image that has no index. In Glance, publish it as properties of the image."""
    deployment = Deployment.load(ctx.obj.config_files)
    found = deployment.images.get(image, shortened=True)
    with transfer(f"reading {found.name}", lambda: found.size) as progress:
        indexed = index_image(Intake(deployment.own_images), deployment.images, found, progress)
    show_image(deployment, indexed, json)
