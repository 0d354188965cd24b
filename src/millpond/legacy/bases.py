"""Files in the image cache that Nova's own driver has made: adopted as the templates of their
names, or removed by Nova's rules when nothing needs them.

An adopted base stays where it is: Nova's disks may be backed by it.
"""

import logging
import os
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from millpond.errors import Busy
from millpond.legacy.image_files import is_nova_base
from millpond.model.formats import DiskFormat
from millpond.model.image import Image
from millpond.model.names import template_name
from millpond.model.server import TemplateRef
from millpond.model.template import Prepared, Template
from millpond.system import files
from millpond.templates.cache_manager import Uses
from millpond.templates.handler import FindFault
from millpond.templates.store import TemplateStore, new_record
from millpond.templates.verdicts import Rules

LOG = logging.getLogger(__name__)

_NAMED = re.compile(r"[0-9a-f]{40}(_sm|_\d+)?|swap_\d+|ephemeral_\d+_\w{7}")
"""As _scan_base_images of nova/virt/libvirt/imagecache.py knows them."""
_PAGE = 4096
_SWAP = b"SWAPSPACE2"
"""At the end of the first page of a swap area (union swap_header of the kernel)."""


@dataclass(frozen=True, slots=True)
class NovaBases:
    _store: TemplateStore
    """One whose files are local."""

    def adopt_image(
        self, image: Image, format: DiskFormat, find_fault: FindFault
    ) -> Template | None:
        """None where there is no such base, or it is not what it should be: then it is left
        alone. The template's lock is held. Interrupted, it was not adopted."""
        path = self._store.cache / template_name(image.id, format)
        if format is not DiskFormat.RAW or not self._may_be_novas(path):
            return None
        if fault := find_fault(path, image):
            LOG.warning("%s is not taken for the base of image %s: %s", path, image.id, fault)
            return None
        return self._adopt(path, _describe(path, image, self._store.pool.name))

    def adopt_swap(self, template: Template) -> Template | None:
        """A swap area, which Nova names as we do, if it is one. The template's lock is held."""
        path = self._store.cache / template.volume
        if not self._may_be_novas(path) or path.stat().st_size != template.size:
            return None
        with path.open("rb") as file:
            if os.pread(file.fileno(), len(_SWAP), _PAGE - len(_SWAP)) != _SWAP:
                return None
        return self._adopt(path, replace(template, prepared=Prepared.ADOPTION))

    def adopt_base(self, base: TemplateRef, image: Image | None) -> None:
        """What a disk of Nova's is backed by, as the template that it is from now on; ``image`` is
        what it was made from, if that is known. One that is not raw stays what it is, because
        Nova gives it the name that a raw template has; but libvirt has to know it."""
        if base.format is not DiskFormat.RAW:
            self._show_to_libvirt(base.volume)
            return
        with self._store.lock(base.volume):
            path = self._store.cache / base.volume
            if not self._may_be_novas(path):
                return  # it is one already, or missing: then the disk cannot be used
            known = image and base.volume == template_name(image.id, base.format)
            self._adopt(path, _describe(path, image if known else None, self._store.pool.name))

    def protect(self, base: TemplateRef) -> None:
        """Again: libvirt gives it to QEMU's user when a domain is started that Nova defined."""
        if self._store.has_record(base.volume):
            _protect(self._store.cache / base.volume)

    def protect_all(self) -> None:
        """What unprotect() has undone, once a driver of ours is back."""
        for each in self._store.all():
            if not each.link:
                with suppress(FileNotFoundError):
                    _protect(self._store.cache / each.volume)

    def unprotect(self) -> None:
        """For Nova's own driver, which copies a base with its mode: QEMU's user could not write to
        a raw disk that is read-only for its owner."""
        for path in files.entries(self._store.cache):
            if is_nova_base(path.name) and path.is_file():
                path.chmod(0o644)

    def prune(
        self,
        rules: Rules,
        needed: Collection[str],
        find_uses: Callable[[], Uses],
        hosts_using: Callable[[str], tuple[str, ...]],
    ) -> list[str]:
        """Remove what nothing needs any more; the names of what went. ``needed``: the names of
        what Nova's instances were made from."""
        if not rules.removes_unused:
            return []
        oldest = datetime.now(UTC) - rules.minimum_age
        uses = find_uses()
        bases = [each for each in self._names() if each.split("_")[0] not in needed]
        unused = [each for each in bases if not uses.of(each) and not hosts_using(each)]
        gone = []
        for name in unused:
            with suppress(Busy, FileNotFoundError), self._store.lock_now(name):
                # Asked again now that nobody can take it for a template.
                if name not in self._names() or not self._is_older(name, oldest):
                    continue
                if find_uses().of(name) or hosts_using(name):
                    continue
                self._store.remove(name)
                LOG.info("removed %s, which Nova had cached and nothing uses", name)
                gone.append(name)
        if gone:
            self._store.pool.refresh()
        return gone

    def _names(self) -> list[str]:
        """Of files that bear a name which Nova's own driver gives, and that nothing of ours
        names."""
        named = [each for each in self._store.unknown() if _NAMED.fullmatch(each)]
        return [each for each in named if self._may_be_novas(self._store.cache / each)]

    def _is_older(self, name: str, than: datetime) -> bool:
        """Nova touches a base whenever it finds it in use."""
        changed = (self._store.cache / name).stat().st_mtime
        return datetime.fromtimestamp(changed, UTC) < than

    def _may_be_novas(self, path: Path) -> bool:
        plain = path.is_file() and not path.is_symlink()
        return plain and not self._store.has_record(path.name)

    def _adopt(self, path: Path, template: Template) -> Template:
        """As if we had made it; the record comes last."""
        _protect(path)
        self._show_to_libvirt(path.name)
        self._store.put(template)
        LOG.info("adopted %s, which Nova had made", path)
        return template

    def _show_to_libvirt(self, name: str) -> None:
        """As a volume: a domain names it by its pool."""
        if self._store.pool.find(name) is None:
            self._store.pool.refresh()


def _protect(path: Path) -> None:
    os.chown(path, os.geteuid(), os.getegid())
    path.chmod(0o444)


def _describe(path: Path, image: Image | None, pool: str) -> Template:
    raw = image is not None and image.format.content is DiskFormat.RAW
    size = path.stat().st_size
    return new_record(
        path.name,
        image,
        pool=pool,
        prepared=Prepared.ADOPTION,
        size=size,
        virtual_size=size,
        digest=image.digest if raw and image and image.digest_algorithm == "sha512" else None,
    )
