"""Files in the cache that Nova's own driver has made, and what makes them templates. Without the
inspection of images, which is slow to load."""

import logging
import os
from dataclasses import replace
from pathlib import Path

from millpond.model.template import Prepared, Template
from millpond.templates.store import TemplateStore

LOG = logging.getLogger(__name__)

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
