"""One host, as a record of its collaborators. It has no verbs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from millpond.disks.backend import ImageBackend, PoolsOf
from millpond.disks.selection import Selection
from millpond.errors import Unsupported
from millpond.images.source import ImageSource
from millpond.libvirt.block_jobs import BlockJobs
from millpond.libvirt.consoles import Consoles
from millpond.libvirt.domains import Domains
from millpond.model.formats import Backend
from millpond.model.server import Disk, VirtType
from millpond.records.journal import Watch, unwatched
from millpond.records.records import Records
from millpond.scheduling.claims import Claims
from millpond.system.locks import Slots
from millpond.templates.blank import BlankTemplates
from millpond.templates.handler import BaseTemplateImagehandler


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    name: str
    domains: Domains
    block_jobs: BlockJobs
    records: Records
    claims: Claims
    images: ImageSource
    templates: BaseTemplateImagehandler
    blanks: BlankTemplates
    pools: PoolsOf
    base_pool: str
    selection: Selection
    backends: Mapping[Backend, ImageBackend]
    legacy: ImageBackend
    """Of disks that lie in no pool (deprecated): they are served, never made."""
    choose_virt_type: Callable[[], VirtType]
    """Asked only when a server is made: finding out costs a call."""
    find_consoles: Callable[[], Consoles]
    """Where their logs are kept: whether here costs a look at the host."""
    starts: Slots
    """How many guests may be starting at a time: more only slow each other down, and who looks."""
    watch: Watch = unwatched

    def backend(self, name: Backend) -> ImageBackend:
        if name not in self.backends:
            raise Unsupported(f"backend {name}", "this version of Millpond does not have it")
        return self.backends[name]

    def storage_of(self, disk: Disk) -> ImageBackend:
        """By where its record says that it is, whatever is configured now (B13)."""
        return self.legacy if disk.path else self.backend(disk.backend)
