"""Whose a cache is that only libvirt reaches: of one host, and of one state directory.

Locks are files here, and nobody else heeds them. So the pool of the records holds an empty volume
whose name says it: made in one call, and there for everybody who looks.
"""

import time
from contextlib import suppress

from millpond.errors import CacheOfAnother, VolumeExists, VolumeNotFound
from millpond.libvirt.pool import Pool
from millpond.model.formats import DiskFormat
from millpond.model.volume import VolumeSpec

_ENDING = ".mark"
_PATIENCE = 5.0
"""Seconds that somebody who came at the same moment has to take their mark away."""


def claim(records: Pool, owner: str, host: str, patience: float = _PATIENCE) -> None:
    """Raises CacheOfAnother."""
    ours = f"{owner}.{host}{_ENDING}"
    marks = _marks(records) or _claim_first(records, ours, patience)
    if others := [each for each in marks if each != ours]:
        raise CacheOfAnother(records.name, others[0], others[0].removesuffix(_ENDING))


def _claim_first(records: Pool, ours: str, patience: float) -> list[str]:
    """The marks that there are when ours was made. Of two that were made at once, the first by
    name stays and the other is removed by its owner; one that stays was there before."""
    with suppress(VolumeExists):
        records.create(VolumeSpec(name=ours, format=DiskFormat.RAW, capacity=0))
    end = time.monotonic() + patience
    while (marks := _marks(records)) != [ours]:
        if marks[0] != ours or time.monotonic() > end:
            with suppress(VolumeNotFound):
                records.delete(ours)
            break
        time.sleep(0.05)
    return marks


def _marks(records: Pool) -> list[str]:
    """What another host put there is seen after a refresh."""
    records.refresh()
    return sorted(name for name in records.names() if name.endswith(_ENDING))
