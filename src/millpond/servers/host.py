"""One host, as a record of its collaborators. It has no verbs."""

from collections.abc import Callable
from dataclasses import dataclass

from millpond.disks.backend import PoolsOf
from millpond.disks.disks import Disks
from millpond.images.source import ImageSource
from millpond.libvirt.block_jobs import BlockJobs
from millpond.libvirt.consoles import Consoles
from millpond.libvirt.domains import Domains
from millpond.model.server import VirtType
from millpond.records.journal import Watch, unwatched
from millpond.records.records import Records
from millpond.scheduling.claims import Claims
from millpond.system.locks import Slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    name: str
    domains: Domains
    block_jobs: BlockJobs
    records: Records
    claims: Claims
    images: ImageSource
    disks: Disks
    pools: PoolsOf
    choose_virt_type: Callable[[], VirtType]
    """Asked only when a server is made: finding out costs a call."""
    find_consoles: Callable[[], Consoles]
    """Where their logs are kept: whether here costs a look at the host."""
    starts: Slots
    """How many guests may be starting at a time: more only slow each other down, and who looks."""
    watch: Watch = unwatched
