"""Templates read again, byte for byte, and compared with what they were."""

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from millpond.errors import MillpondError, VolumeNotFound
from millpond.model.callbacks import Progress, noop
from millpond.model.template import Template
from millpond.templates.publication import Publication, Users
from millpond.templates.store import TemplateStore

LOG = logging.getLogger(__name__)


class Outcome(StrEnum):
    INTACT = "intact"
    RECORDED = "recorded"
    """Its first scrub: from now on it is compared with what it is today."""
    LINKED = "linked"
    """Its bytes are somebody else's to look after."""
    GONE = "gone"
    """Removed or recreated while it was read."""
    REPLACED = "replaced"
    SET_ASIDE = "set aside"
    """It was wrong, and is made again when it is needed."""
    WRONG = "wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrubbed:
    template: Template
    outcome: Outcome
    detail: str = ""
    """What is to be known, in words."""


Renew = Callable[[Template], Template]
"""Prepare the template of an image again, from bytes that were compared with their digest."""


class Scrub:
    def __init__(
        self, store: TemplateStore, publication: Publication, users: Users, renew: Renew
    ) -> None:
        self._store = store
        self._publication = publication
        self._users = users
        self._renew = renew

    def scrub(self, template: Template, progress: Progress = noop) -> Scrubbed:
        """Read without its lock, so that servers are made from it meanwhile: its bytes never
        change. The lock is held for what follows."""
        if template.link:
            return Scrubbed(template=template, outcome=Outcome.LINKED)
        try:
            found = self._digest(template, progress)
        except VolumeNotFound:
            return Scrubbed(template=template, outcome=Outcome.GONE)
        if found == template.digest:
            return Scrubbed(template=template, outcome=Outcome.INTACT)
        with self._store.lock(template.volume):
            outcome = self._settle(template, found)
        wrong = outcome.outcome is Outcome.WRONG
        return self._replace(outcome) if wrong and template.image else outcome

    def _settle(self, template: Template, found: str) -> Scrubbed:
        """Do what is due where the digest differs. The template's lock is held."""
        name = template.volume
        if self._store.find(name) != template:
            return Scrubbed(template=template, outcome=Outcome.GONE)
        if template.digest is None:
            self._store.put(replace(template, digest=found))
            return Scrubbed(template=template, outcome=Outcome.RECORDED)
        users, kept = self._users(name), self._store.quarantine(name)
        LOG.warning("template %s is not what it was, which is kept in %s", name, kept)
        detail = f"what it was is in {kept}"
        if users:
            detail = f"used by {', '.join(users)}, which may have read wrong bytes; {detail}"
        elif not template.image:
            self._publication.remove(name)
            return Scrubbed(template=template, outcome=Outcome.SET_ASIDE, detail=detail)
        return Scrubbed(template=template, outcome=Outcome.WRONG, detail=detail)

    def _replace(self, wrong: Scrubbed) -> Scrubbed:
        """Prepare it again, also beneath disks: the bytes are those that the disks were made
        from. A server that runs has the old file open until it is started again."""
        try:
            fresh = self._renew(wrong.template)
        except MillpondError as error:
            self._remove_unless_used(wrong.template)
            return replace(wrong, detail=f"{wrong.detail}; it could not be prepared anew: {error}")
        return replace(wrong, template=fresh, outcome=Outcome.REPLACED)

    def _remove_unless_used(self, template: Template) -> None:
        with self._store.lock(template.volume):
            if not self._users(template.volume):
                self._publication.remove(template.volume)

    def _digest(self, template: Template, progress: Progress = noop) -> str:
        digest = hashlib.sha512()
        for chunk in self._store.read(template.volume):
            digest.update(chunk)
            progress(len(chunk))
        return digest.hexdigest()
