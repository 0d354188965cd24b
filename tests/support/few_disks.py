"""Disks without the collaborators that a test does not need."""

from collections.abc import Mapping
from typing import Any

from millpond.disks.disks import Disks
from millpond.model.callbacks import noop
from millpond.model.formats import Backend


def disks_of(backends: Mapping[Backend, Any], **others: Any) -> Disks:
    absent: dict[str, Any] = dict.fromkeys(Disks.__slots__)
    given = {"storage": backends.__getitem__, "watch": noop, **others}
    return Disks(**{**absent, **given})
