"""The table of docs/formats.md, and a walk along one backend's column with guests that boot."""

from collections.abc import Collection
from pathlib import Path

from millpond.errors import Unsupported
from millpond.model.formats import Backend, ImageFormat
from millpond.model.server import Flavor
from millpond.model.sizes import MiB
from millpond.servers import create, delete
from millpond.servers.create import ServerRequest
from tests.support.guests import MicroGuest
from tests.support.image_files import iso_file, qemu_img
from tests.support.millpond import Millpond

_PAGE = Path(__file__).parents[2] / "docs/formats.md"
_SYSTEM_AREA = 4 * 512
"""The guest's own sectors, which an ISO leaves to the system."""


def column(backend: Backend) -> dict[ImageFormat, str]:
    """What the page says of each image format."""
    rows = [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in _PAGE.read_text().splitlines()
        if line.startswith("|") and not line.startswith("|-")
    ]
    at = rows[0].index(backend)
    return {ImageFormat(row[0]): row[at] for row in rows[1:]}


def image_of(guest: MicroGuest, format: ImageFormat, directory: Path) -> Path:
    """The guest as an image of this format."""
    target = directory / f"guest.{format}"
    if format is ImageFormat.ISO:
        return iso_file(directory, 512, guest.path.read_bytes()[:_SYSTEM_AREA])
    options = ("-o", "force_size=on") if format is ImageFormat.VHD else ()
    qemu_img(
        *("convert", "-f", "raw", "-O", format.content.qemu, *options),
        *(guest.path, target),
    )
    return target


def walk(
    millpond: Millpond,
    guest: MicroGuest,
    backend: Backend,
    *options: str,
    formats: Collection[ImageFormat] = tuple(ImageFormat),
) -> None:
    """These formats of the column at the same time on one host."""
    said = {each: verdict for each, verdict in column(backend).items() if each in formats}
    mapping = ", ".join(f"{each}:{backend}" for each in ImageFormat if each.can_be_a_disk)
    millpond.configure("\n".join([f"images_type_mapping = {mapping}", *options]))
    host = millpond.host()
    selection = host.settings.libvirt.selection
    servers = {}
    for format, verdict in said.items():
        if verdict == "refused":
            _is_refused(selection, format)
            continue
        assert ("native" if selection.choose(format).native else "converted") == verdict
        path = image_of(guest, format, millpond.directory)
        millpond.ok("image", "add", path, "--disk-format", format, "--name", format)
        request = ServerRequest(
            name=format.value,
            image=host.shared.catalogue.get(format),
            flavor=Flavor(memory=32 * MiB),
        )
        servers[format] = create.create(host, request)
    for server in servers.values():
        assert guest.marker in millpond.wait_for_console(server.id, "READY", 120)
        assert {disk.backend for disk in server.disks} == {backend}
        delete.delete(host, server)


def _is_refused(selection, format: ImageFormat) -> None:
    try:
        selection.choose(format)
    except Unsupported:
        return
    raise AssertionError(f"{format} is taken for a disk")
