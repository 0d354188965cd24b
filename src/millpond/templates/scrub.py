"""Templates read again, byte for byte, and compared with what they were."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from millpond.errors import MillpondError
from millpond.model.template import Template
from millpond.system import files
from millpond.system.files import Progress, silent
from millpond.templates.handler import Users
from millpond.templates.publication import Publication
from millpond.templates.store import TemplateStore


class Outcome(StrEnum):
    INTACT = "intact"
    RECORDED = "recorded"
    """Its first scrub: from now on it is compared with what it is today (decision 5)."""
    LINKED = "linked"
    """Its bytes are somebody else's to look after."""
    GONE = "gone"
    """Removed or made anew while it was read."""
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


Fetch = Callable[[Template], Template | None]
"""Prepare a template anew; None for one that has no image."""


class Scrub:
    def __init__(
        self, store: TemplateStore, publication: Publication, users: Users, fetch: Fetch
    ) -> None:
        self._store = store
        self._publication = publication
        self._users = users
        self._fetch = fetch

    def scrub(self, template: Template, progress: Progress = silent) -> Scrubbed:
        """Read without its lock, so that servers are made from it meanwhile: its bytes never
        change. The lock is held for what follows."""
        if template.link:
            return Scrubbed(template=template, outcome=Outcome.LINKED)
        try:
            found = self._digest(template, progress)
        except FileNotFoundError:
            return Scrubbed(template=template, outcome=Outcome.GONE)
        if found == template.digest:
            return Scrubbed(template=template, outcome=Outcome.INTACT)
        with self._store.lock(template.volume):
            outcome = self._settled(template, found)
        return self._replaced(outcome) if outcome.outcome is Outcome.SET_ASIDE else outcome

    def _settled(self, template: Template, found: str) -> Scrubbed:
        """What is to be done where the digest differs. The template's lock is held."""
        name = template.volume
        if self._store.find(name) != template:
            return Scrubbed(template=template, outcome=Outcome.GONE)
        if template.digest is None:
            self._store.put(replace(template, digest=found))
            return Scrubbed(template=template, outcome=Outcome.RECORDED)
        if users := self._users(name):
            detail = f"left alone, because it is used by {', '.join(users)}"
            return Scrubbed(template=template, outcome=Outcome.WRONG, detail=detail)
        detail = f"what it was is in {self._publication.set_aside(name)}"
        return Scrubbed(template=template, outcome=Outcome.SET_ASIDE, detail=detail)

    def _replaced(self, aside: Scrubbed) -> Scrubbed:
        """Where its image lies on the same file system, the two may have been one file."""
        try:
            fresh = self._fetch(aside.template)
        except MillpondError as error:
            detail = f"{aside.detail}; it could not be prepared anew: {error}"
            return replace(aside, outcome=Outcome.WRONG, detail=detail)
        if fresh is None:
            return aside
        if fresh.digest in (None, self._digest(fresh)):
            return replace(aside, template=fresh, outcome=Outcome.REPLACED)
        self._drop_unless_used(fresh)
        detail = f"{aside.detail}; its image is damaged, too: add that again"
        return replace(aside, outcome=Outcome.WRONG, detail=detail)

    def _drop_unless_used(self, template: Template) -> None:
        with self._store.lock(template.volume):
            if not self._users(template.volume):
                self._publication.drop(template.volume)

    def _digest(self, template: Template, progress: Progress = silent) -> str:
        digest = hashlib.sha512()
        with open(self._store.cache / template.volume, "rb", buffering=0) as file:
            while chunk := file.read(files.CHUNK):
                digest.update(chunk)
                progress(len(chunk))
        return digest.hexdigest()
