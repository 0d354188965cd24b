"""Templates: none half made, and each that backs a disk whole."""

from collections.abc import Iterator
from functools import partial

from millpond.doctor.finding import Finding, counted, ok, problem, some, warning
from millpond.doctor.records import abandoned_locks, abandoned_writes
from millpond.errors import ImageNotFound, PoolNotFound, Tool
from millpond.hosts.cache import open_store
from millpond.hosts.host import Host
from millpond.model.server import Disk, ImageRef, Server, TemplateRef
from millpond.system import files
from millpond.templates.store import TemplateStore


def unfinished(host: Host) -> Iterator[Finding]:
    store = open_store(host)
    begun = store.unfinished() if store else []
    left = [name for name in begun if store and not store.is_worked_on(name)]
    if left:
        yield warning(
            f"the preparation of {counted(len(left), 'template')} was interrupted: {some(left)}",
            f"'{Tool.REPAIR}' finishes what is complete and removes the rest; none of that is "
            "ever used",
            partial(_clear, host),
        )
    else:
        yield ok("no preparation of a template was interrupted")


def half_written(host: Host) -> Iterator[Finding]:
    """Records of templates, notes of their use, pins."""
    if store := open_store(host):
        directories = [each for each in files.entries(store.sidecar) if each.is_dir()]
        yield from abandoned_writes(directories, "note")
        yield from abandoned_locks([store.sidecar / "locks"])


def needed(host: Host) -> Iterator[Finding]:
    """What backs disks. Two disks on the same template are one finding. The bases of disks in
    Nova's legacy layout are Nova's, and looked for with the disks."""
    store = open_store(host)
    bases = {
        disk.template: (server, disk)
        for server in host.records.all()
        for disk in server.disks
        if disk.template and disk.overlay and not disk.path and not server.operation
    }
    gone = [base for base in bases if not _is_there(host, store, base)]
    for base in gone:
        yield _describe_missing(host, base, *bases[base])
    if bases and not gone:
        yield ok("each template that a disk is backed by is there")


def _is_there(host: Host, store: TemplateStore | None, base: TemplateRef) -> bool:
    """The cache may have been another pool when the disk was made."""
    if store and base.pool == store.pool.name:
        return store.find(base.volume) is not None
    try:
        return host.pools.open(base.pool).find(base.volume) is not None
    except PoolNotFound:
        return False


def links(host: Host) -> Iterator[Finding]:
    store = open_store(host)
    every = store.all() if store else ()
    linked = [each for each in every if each.link and not each.streams]
    lost = [each.volume for each in linked if host.handlers.linking.is_dangling(each)]
    if lost:
        yield problem(
            f"{counted(len(lost), 'linked template')} cannot be read any more: {some(lost)}",
            f"'{Tool.REPAIR}' links what it can, and drops what backs no disk",
            partial(_link_again, host),
        )
    elif linked:
        yield ok("each linked template leads where it should")


def arriving(host: Host) -> Iterator[Finding]:
    """Those that are used before all of them is there."""
    store = open_store(host)
    for name in store.streams() if store else ():
        found = host.handlers.streaming.status(name)
        if not found.served:
            yield problem(
                f"template {name} is still arriving, and nobody serves it ({found.summary})",
                f"'{Tool.REPAIR}' serves it again, and so does the start of a server",
                partial(_serve, host, name),
            )
        elif found.waits_for:
            yield warning(
                f"template {name} is still arriving ({found.percent} %), and waits: "
                f"{found.waits_for}",
                "it goes on by itself when that is over",
            )
        else:
            yield ok(f"template {name} is arriving: {found.summary}")


def _serve(host: Host, name: str) -> str:
    host.handlers.cleanup()
    return host.handlers.streaming.status(name).summary


def _link_again(host: Host) -> str:
    host.handlers.cleanup()
    return "what could be linked again was, and what nothing uses was dropped"


def _describe_missing(host: Host, base: TemplateRef, server: Server, disk: Disk) -> Finding:
    users = ", ".join(host.template_uses.promised().of(base.volume))
    what = f"template {base.volume} is missing or damaged, and disks are backed by it: {users}"
    image = server.image_of(disk)
    if image is None:
        return problem(what, "restore it from a copy: formatted again it would be another one")
    if _has_image(host, image):
        return problem(
            what,
            f"'{Tool.REPAIR}' prepares it again from image {image.name!r}",
            partial(_prepare, host, base, image),
        )
    return problem(
        what,
        f"restore it from a copy: image {image.name!r}, which it was made from, is gone",
    )


def _has_image(host: Host, image: ImageRef) -> bool:
    try:
        host.images.describe(image.id)
    except ImageNotFound:
        return False
    return True


def _prepare(host: Host, base: TemplateRef, made_from: ImageRef) -> str:
    image = host.images.describe(made_from.id)
    template = host.handlers.chosen.fetch_image(image, base.format)
    return f"it was prepared again by {template.prepared}"


def _clear(host: Host) -> str:
    host.handlers.cleanup()
    store = open_store(host)
    left = store.unfinished() if store else []
    if left:
        return f"some of it stays for now: {some(left)}"
    return "what was complete was finished, the rest was removed"
