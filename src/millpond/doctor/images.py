"""Images: each with its content, and nothing that interrupted operations left."""

import re
from collections.abc import Iterator
from functools import partial

from millpond.doctor.finding import Finding, counted, ok, problem, warning
from millpond.errors import DamagedRecord, NewerRecord, Tool, UnreadableRecord
from millpond.hosts.host import Host
from millpond.images.catalogue import Catalogue
from millpond.images.source import TakesUploads
from millpond.model.image import ROOT_IMAGE, Image
from millpond.model.names import UUID, ImageId
from millpond.model.sizes import format_size


def contents(host: Host) -> Iterator[Finding]:
    images, unreadable = host.shared.catalogue.readable()
    for each in unreadable:
        yield problem(str(each), _advice(each))
    gone = [image for image in images if not _has_content(host.shared.catalogue, image)]
    for image in gone:
        yield problem(
            f"the content of image {image.name!r} is gone: no server can be made from it",
            f"'{Tool.REMOVE_IMAGE} {image.name}', and add it again",
        )
    if not gone and not unreadable:
        yield ok(f"{counted(len(images), 'image')} on record, none without its content")


def _advice(found: UnreadableRecord) -> str:
    if isinstance(found, NewerRecord):
        return found.advice
    return f"rm {found.path}, and add the image again; until then no image can be removed"


def leftovers(host: Host) -> Iterator[Finding]:
    left = host.shared.catalogue.leftovers()
    if left:
        size = sum(path.stat().st_size for path in left)
        yield warning(
            f"interrupted operations on images left {counted(len(left), 'file')} of "
            f"{format_size(size)}",
            f"'{Tool.REPAIR}' removes them; no image needs them",
            partial(_cleanup, host.shared.catalogue),
        )
    else:
        yield ok("no operation on an image was interrupted")


def incomplete(host: Host) -> Iterator[Finding]:
    """Images of a snapshot of several disks, whose process died before it added the root disk's:
    what it had of that is still there."""
    catalogue = host.shared.catalogue
    dead = {path.name for path in catalogue.leftovers()}
    images = catalogue.readable()[0]
    dead -= {image.id for image in images}
    servers, unreadable = host.shared.records.readable()
    used = {server.image.id for server in servers}
    for image in () if unreadable else images:
        if image.properties.get(ROOT_IMAGE) in dead and image.id not in used:
            yield warning(
                f"image {image.name!r} is of a snapshot that was interrupted: the one of the root "
                "disk is missing",
                f"'{Tool.REPAIR}' removes it",
                partial(_remove, catalogue, image),
            )


def _remove(catalogue: Catalogue, image: Image) -> str:
    catalogue.remove(image)
    return "it was removed"


def uploads(host: Host) -> Iterator[Finding]:
    """What a process had begun in Glance when it died: its file here bears the same id."""
    found = host.shared.uploads
    left = host.shared.catalogue.leftovers() if found else []
    for id in (ImageId(path.name) for path in left if re.fullmatch(UUID, path.name)):
        if found and (name := found[1].unfinished(id)):
            yield warning(
                f"the upload of image {name!r} ({id}) was interrupted",
                f"'{Tool.REPAIR}' removes it from where it was uploaded to",
                partial(_abandon, found[1], id),
            )


def _abandon(source: TakesUploads, id: ImageId) -> str:
    source.abandon(id)
    return "it was removed"


def _has_content(catalogue: Catalogue, image: Image) -> bool:
    try:
        catalogue.local_file(image)
    except DamagedRecord:
        return False
    return True


def _cleanup(catalogue: Catalogue) -> str:
    return f"{counted(len(catalogue.cleanup()), 'file')} removed"
