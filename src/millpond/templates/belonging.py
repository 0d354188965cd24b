"""Whose a cache is that only libvirt reaches: of one host, and of one state directory.

Locks are files here, and nobody else heeds them. So the pool of the records holds an empty volume
whose name says it: made in one call, and there for everybody who looks.
"""

from contextlib import suppress

from millpond.errors import CacheOfAnother, VolumeExists
from millpond.model.formats import DiskFormat
from millpond.model.volume import VolumeSpec
from millpond.storage.pool import Pool

_ENDING = ".mark"


def claim(records: Pool, owner: str, host: str) -> None:
    """Raises CacheOfAnother. What another host put there is seen after a refresh."""
    ours = f"{owner}.{host}{_ENDING}"
    records.refresh()
    marks = {name for name in records.names() if name.endswith(_ENDING)}
    if others := sorted(marks - {ours}):
        raise CacheOfAnother(records.name, others[0], others[0].removesuffix(_ENDING))
    if not marks:
        with suppress(VolumeExists):
            records.create(VolumeSpec(name=ours, format=DiskFormat.RAW, capacity=0))
