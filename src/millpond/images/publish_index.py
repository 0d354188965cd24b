"""The index of an image to where the image is: whoever reads it there can verify parts of it."""

import hashlib
import logging
from pathlib import Path

from millpond.errors import MillpondError
from millpond.images.index import Index
from millpond.images.intake import Intake
from millpond.images.receive import receive
from millpond.images.source import Library, TakesUploads, Upload
from millpond.model.callbacks import Progress, noop
from millpond.model.formats import ImageFormat
from millpond.model.image import Image
from millpond.model.names import ImageId

LOG = logging.getLogger(__name__)

OF_IMAGE = "millpond_list_of"
"""Says of the image that holds a list whose list it is."""


def index_image(intake: Intake, images: Library, image: Image, progress: Progress) -> Image:
    """What has an index already is not read again."""
    if not isinstance(images, TakesUploads):
        return image if intake.find_index(image) else intake.index(image, progress)
    if images.find_index(image):
        return image
    with intake.arriving() as (_, part):
        index = receive(images.open(image), part, image.format, image.name, progress).index
    return publish_index(intake, images, image, index)


def publish_index(intake: Intake, source: TakesUploads, image: Image, index: Index) -> Image:
    """The list as an image of its own, which no list of images shows; its id and the root as
    properties. In properties, lists would be in every answer about the image."""
    with intake.arriving() as (id, part):
        part.write_bytes(index.digests)
        source.upload(_list_of(image, index, id, part), noop)
        return source.state_index(image, index.root, id)


def try_to_publish_index(
    intake: Intake, source: TakesUploads, image: Image, index: Index
) -> Image:
    """Of an image that was just uploaded, and is whole without."""
    try:
        return publish_index(intake, source, image, index)
    except MillpondError as error:
        LOG.warning("the index of image %s is not published: %s", image.name, error)
        return image


def _list_of(image: Image, index: Index, id: ImageId, part: Path) -> Upload:
    size = len(index.digests)
    return Upload(
        id=id,
        path=part,
        name=f"{image.name}.index",
        format=ImageFormat.RAW,
        size=size,
        virtual_size=size,
        digest=hashlib.sha512(index.digests).hexdigest(),
        properties={OF_IMAGE: image.id},
        hidden=True,
    )
