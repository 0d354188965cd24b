"""Files in the cache that Nova's own driver has made, and what makes them templates. Without the
inspection of images, which is slow to load."""

import logging
import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from millpond.model.template import Prepared, Template
from millpond.templates.store import TemplateStore

LOG = logging.getLogger(__name__)

_NAMED = re.compile(r"[0-9a-f]{40}(_sm|_\d+)?|swap_\d+|ephemeral_\d+_\w{7}")
"""As _scan_base_images of nova/virt/libvirt/imagecache.py knows them."""
_PAGE = 4096
_SWAP = b"SWAPSPACE2"
"""At the end of the first page of a swap area (union swap_header of the kernel)."""


def adopt_swap(store: TemplateStore, template: Template) -> Template | None:
    """A swap area, which Nova names as we do, if it is one. The template's lock is held."""
    path = store.cache / template.volume
    if not may_be_novas(store, path) or path.stat().st_size != template.size:
        return None
    with path.open("rb") as file:
        if os.pread(file.fileno(), len(_SWAP), _PAGE - len(_SWAP)) != _SWAP:
            return None
    return take(store, path, replace(template, prepared=Prepared.ADOPTION))


def names_of_bases(store: TemplateStore) -> list[str]:
    """Of files that bear a name which Nova's own driver gives, and that nothing of ours names."""
    named = [each for each in store.shelf.names() if _NAMED.fullmatch(each)]
    others = [each for each in named if not store.is_unfinished(each)]
    return [each for each in others if may_be_novas(store, store.cache / each)]


def is_older(store: TemplateStore, name: str, than: datetime) -> bool:
    """Nova touches a base whenever it finds it in use."""
    changed = (store.cache / name).stat().st_mtime
    return datetime.fromtimestamp(changed, UTC) < than


def may_be_novas(store: TemplateStore, path: Path) -> bool:
    plain = path.is_file() and not path.is_symlink()
    return store.adopts and plain and not store.has_record(path.name)


def take(store: TemplateStore, path: Path, template: Template) -> Template:
    """As if we had made it; the record comes last."""
    os.chown(path, os.geteuid(), os.getegid())
    path.chmod(0o444)
    if store.pool.find(path.name) is None:
        store.pool.refresh()
    store.put(template)
    LOG.info("took over %s, which Nova had made", path)
    return template
