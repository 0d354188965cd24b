"""The image cache of a host: which templates it has, and what becomes of them."""

from collections.abc import Collection, Iterator
from contextlib import suppress

from millpond.config import HANDLERS
from millpond.disks.rbd_storage import is_complete
from millpond.errors import (
    ImageNotFound,
    PoolNotFound,
    PoolOfAnotherType,
    TemplateInUse,
    TemplateNotFound,
)
from millpond.hosts.handlers import NOT_LINKED
from millpond.hosts.host import Host
from millpond.model.formats import Backend, DiskFormat
from millpond.model.image import Image
from millpond.model.names import ImageId, split_volume_name, template_name
from millpond.model.stream import StreamStatus
from millpond.model.template import Template
from millpond.model.volume import Volume
from millpond.templates.handler import LinkPreview, find_handler
from millpond.templates.store import TemplateStore
from millpond.templates.streams.plan import StreamDirectory
from millpond.templates.verdicts import Rules, TemplateVerdict


def list_templates(host: Host) -> Iterator[Template]:
    """Where none was ever made, no pool is made to look for them."""
    store = host.find_template_store()
    return store.all() if store else iter(())


def get_templates(host: Host, name: str) -> list[Template]:
    """The one of this name, or all of an image. Raises TemplateNotFound."""
    id = _find_image_id(host, name)
    found = [
        each
        for each in list_templates(host)
        if each.volume == name or (each.image and each.image in (name, id))
    ]
    if not found:
        raise TemplateNotFound(name)
    return found


def list_cluster_templates(host: Host) -> list[Volume]:
    """Templates in the Ceph cluster, of all hosts that share it."""
    if not (access := host.pool_plan.ceph):
        return []
    pool = host.pools.for_disk(Backend.RBD)
    pool.refresh()
    others = [each for each in pool.volumes() if not split_volume_name(each.name)]
    return [each for each in others if is_complete(access, each.name)]


def has_template(host: Host, image: ImageId, format: DiskFormat, backend: Backend) -> bool:
    """Whether what disks are made from is there."""
    name = template_name(image, format)
    store = host.find_template_store()
    found = store.find(name) if store else None
    if backend is not Backend.RBD:
        return found is not None
    if found and found.link:
        return True  # in the same cluster disks are cloned from what it leads to
    access = host.pool_plan.ceph
    return bool(access and is_complete(access, name))


def open_store(host: Host) -> TemplateStore | None:
    """The templates as they are; None where there is no base pool yet, or another one of its
    name, which doctor tells of. No pool is made."""
    try:
        host.pools.open(host.pool_plan.base.name)
    except (PoolNotFound, PoolOfAnotherType):
        return None
    return host.template_store


def find_status(host: Host, template: Template) -> StreamStatus | None:
    """How far a template is whose bytes are still arriving."""
    store = host.find_template_store()
    if not store or not template.streams:
        return None
    return StreamDirectory(store.stream(template.volume)).status()


def survey(host: Host, rules: Rules) -> list[TemplateVerdict]:
    """What would become of each template. Nothing is changed, and no pool is made."""
    return host.cache_manager.survey(rules) if host.find_template_store() else []


def preview_link(host: Host, image: Image, format: DiskFormat) -> LinkPreview:
    """How a template would be prepared. Nothing is made."""
    store = host.find_template_store()
    if store and not store.local:
        return LinkPreview(not_linked=NOT_LINKED)
    kind = find_handler(HANDLERS, host.shared.settings.template_image_handler)
    found = kind.preview_stream(host.images, store, host.stream_access, image, format)
    if found.streamed or found.not_streamed:
        return found
    return kind.preview_link(host.images, host.link_access, image, format)


def remove_image(host: Host, image: Image) -> None:
    """Remove the templates of an image, if nothing uses any; those in the cluster first, which
    can fail."""
    going = [each for each in list_templates(host) if each.image == image.id]
    for template in going:
        if users := host.template_uses.users(template.volume):
            raise TemplateInUse(template.volume, users)
    if host.cluster:
        for format in DiskFormat:
            host.cluster.remove_template(template_name(image.id, format))
    for template in going:
        host.handlers.remove_image(template)
        host.leases.unpin(template.volume)


def prune_bases(host: Host, needed: Collection[str]) -> list[str]:
    """Of Nova's own driver, by Nova's rules; the names of what went."""
    if host.nova_bases is None:
        return []
    find_uses, hosts_using = host.template_uses.all, host.leases.hosts_using
    return host.nova_bases.prune(host.cache_rules, needed, find_uses, hosts_using)


def _find_image_id(host: Host, name: str) -> ImageId | None:
    with suppress(ImageNotFound):
        return host.images.get(name).id
    return None
