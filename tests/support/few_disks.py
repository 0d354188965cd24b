"""Disks without the collaborators that a test does not need."""

from collections.abc import Mapping
from typing import Any

from millpond.disks.disks import Disks
from millpond.model.formats import Backend
from millpond.records.journal import unwatched


def disks_of(backends: Mapping[Backend, Any], **others: Any) -> Disks:
    absent: dict[str, Any] = dict.fromkeys(Disks.__slots__)
    given = {"storage": backends.__getitem__, "watch": unwatched, **others}
    return Disks(**{**absent, **given})
