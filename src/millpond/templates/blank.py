"""Templates without an image: a formatted ephemeral disk, a swap area; one for all of a size."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from millpond.errors import DamagedRecord
from millpond.model.callbacks import Progress, noop
from millpond.model.names import blank_template_name
from millpond.model.server import Content
from millpond.model.template import Prepared, Template
from millpond.records.journal import Step, Watch
from millpond.system import mkfs
from millpond.templates.handler import NoteUse, find_known
from millpond.templates.publication import MakeRoom, Publication, Users
from millpond.templates.store import TemplateStore, new_record

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlankPreparation:
    content: Content
    size: int
    filesystem: str
    """Empty for a swap area."""

    @property
    def replaces(self) -> bool:
        return False  # one that is there is refused

    @property
    def name(self) -> str:
        return blank_template_name(self.content, self.size, self.filesystem)

    def scale_progress(self, _length: int) -> Progress:
        return noop

    def make_record(self, path: Path, pool: str) -> Template:
        return new_record(
            self.name,
            None,
            pool=pool,
            prepared=Prepared.FORMATTING,
            size=self.size,
            virtual_size=self.size,
        )


class BlankTemplates:
    def __init__(
        self,
        store: TemplateStore,
        filesystem: str,
        users: Users,
        watch: Watch = noop,
        note_use: NoteUse = noop,
        make_room: MakeRoom = noop,
        adopt_swap: Callable[[Template], Template | None] = noop,
    ) -> None:
        self._store = store
        self._adopt_swap = adopt_swap
        self._note_use = note_use
        self._filesystem = filesystem
        self._publication = Publication(store, users, watch, make_room)

    def name(self, content: Content, size: int, filesystem: str = "") -> str:
        """``filesystem``: of an ephemeral disk, if it is not the one of the configuration."""
        return self._preparation(content, size, filesystem).name

    def fetch(self, content: Content, size: int, filesystem: str = "") -> Template:
        """Prepared once, however many ask at once."""
        wanted = self._preparation(content, size, filesystem)
        with self._store.lock(wanted.name):
            template = self._find(wanted.name) or self._prepare(wanted)
            self._note_use(wanted.name)
            return template

    def remove(self, template: Template) -> None:
        """Remove it. Its lock is held, and nothing uses it: the caller has asked."""
        self._publication.remove(template.volume)
        LOG.info("removed template %s", template.volume)

    def _find(self, name: str) -> Template | None:
        return find_known(self._store, name) or self._publication.resume(name)

    def _prepare(self, wanted: BlankPreparation) -> Template:
        if wanted.content is Content.SWAP:
            described = wanted.make_record(self._store.cache / wanted.name, self._store.pool.name)
            if adopted := self._adopt_swap(described):
                return adopted
        self._refuse_to_replace(wanted.name)
        verb = self._publication.verb([Step("format", self._format)])
        template = self._publication.run(wanted, verb)
        LOG.info("prepared template %s", wanted.name)
        return template

    def _refuse_to_replace(self, name: str) -> None:
        """Formatted again it would be another file system, under the disks above it."""
        if self._publication.will_replace(name):
            raise DamagedRecord(self._store.cache / name, "disks may be backed by this template")

    def _preparation(self, content: Content, size: int, filesystem: str) -> BlankPreparation:
        filesystem = "" if content is Content.SWAP else filesystem or self._filesystem
        return BlankPreparation(content=content, size=size, filesystem=filesystem)

    def _format(self, wanted: BlankPreparation) -> BlankPreparation:
        part = self._publication.part(wanted)
        part.unlink(missing_ok=True)  # of an attempt that was interrupted
        with open(part, "xb") as file:
            file.truncate(wanted.size)
        if wanted.content is Content.SWAP:
            mkfs.make_swap(part)
        else:
            mkfs.make_filesystem(part, wanted.filesystem, "ephemeral0")
        return wanted
