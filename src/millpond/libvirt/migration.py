"""A running domain goes from one libvirtd to another: libvirt's calls for it."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from millpond.errors import LibvirtFailed, MillpondError
from millpond.libvirt.domains import get_domain
from millpond.model.names import ServerId
from millpond.system import libvirt_migration as names
from millpond.system import libvirtd
from millpond.system.libvirtd import Libvirtd
from millpond.system.waiting import POLL, wait_until

LOG = logging.getLogger(__name__)

END_PATIENCE = 60.0
"""Seconds in which libvirt ends a migration that was aborted, or whose client died."""
_NOTE_PATIENCE = 5.0
_PORT_TAKEN = "Address already in use"
"""What QEMU says of a port that libvirt has found free: the libvirt of another host on the same
machine chose it, too. Nothing has begun then, and the next one is tried."""
_TRIES = 5


class Place(StrEnum):
    """How far a domain is on one of the two hosts."""

    GONE = "gone"
    OFF = "off"
    ARRIVING = "arriving"
    """QEMU waits for the rest of it."""
    WAITING = "waiting"
    """All of it is here, and its guest is paused."""
    RUNS = "runs"
    LEFT = "left"
    """A part of its memory is only at the other one (post-copy): it does not go on here."""

    @property
    def has_qemu(self) -> bool:
        return self not in (Place.GONE, Place.OFF)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How QEMU's bytes come to the destination."""

    address: str = ""
    """Where its QEMU listens, and nowhere else: ``tcp://ADDRESS``, or with a port."""
    peer: str = ""
    """The URI by which the source's libvirtd reaches the destination's: then they go through
    that connection, and QEMU listens nowhere."""
    tls: bool = False

    @property
    def listen(self) -> str:
        """The address alone."""
        return urlsplit(self.address).hostname or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    auto_converge: bool = False
    """A guest that writes faster than it is copied is slowed down."""
    post_copy: bool = False
    """Its guest continues at the destination before all its memory is there."""
    patience: float = 0
    """Seconds until it is given up; 0: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Bytes that were carried so far."""

    memory: int = 0
    disks: int = 0
    rounds: int = 0
    """How often all its memory was looked at for what the guest has written."""
    left: bool = False
    """Its guest was told to continue at the destination (post-copy): there is no way back."""

    @property
    def all(self) -> int:
        return self.memory + self.disks


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """All that libvirt is told."""

    running: str
    """The domain as it is to run there."""
    defined: str
    """As it is to be defined there."""
    mirrored: tuple[str, ...]
    """Targets of the disks that are copied."""
    shares: bool
    """Other disks that it writes to are in pools that were proven to be one."""
    route: Route
    options: LiveOptions

    @property
    def flags(self) -> int:
        flags = names.MIGRATE
        for flag, wanted in (
            (names.MIRROR_TOPS, bool(self.mirrored)),
            (names.SYNCHRONOUS_WRITES, bool(self.mirrored) and self.options.auto_converge),
            (names.UNSAFE, self.shares),
            (names.AUTO_CONVERGE, self.options.auto_converge),
            (names.POST_COPY, self.options.post_copy),
            (names.PAUSED, not self.options.post_copy),
            (names.TUNNELLED, bool(self.route.peer)),
            (names.TLS, self.route.tls),
        ):
            flags |= flag if wanted else 0
        return flags

    @property
    def parameters(self) -> dict[str, Any]:
        found: dict[str, Any] = {names.RUNNING_XML: self.running, names.DEFINED_XML: self.defined}
        if self.mirrored:
            found[names.DISKS] = list(self.mirrored)
        if self.route.address:
            found[names.URI] = self.route.address
            found[names.LISTEN] = self.route.listen
        return found


def look(host: Libvirtd, id: ServerId) -> Place:
    with host.calling(f"asking for domain {id}") as connection:
        domain = libvirtd.find_domain(connection, id)
        if domain is None:
            return Place.GONE
        if not domain.isActive():
            return Place.OFF
        state, reason = domain.state(0)
    if (state, reason) in names.LEFT:
        return Place.LEFT
    if state != names.PAUSED_STATE:
        return Place.RUNS
    return Place.ARRIVING if reason in names.ARRIVING else Place.WAITING


def has_moved(here: Place, there: Place) -> bool:
    """Of a migration that libvirt ends by itself: it lets the guest continue at the destination,
    and only then undefines it at the source. Where nobody has it, nothing says that it moved."""
    match here:
        case Place.GONE:
            return there is not Place.GONE
        case Place.RUNS:
            return False
        case Place.OFF:
            return there in (Place.WAITING, Place.RUNS, Place.LEFT)
    return there in (Place.RUNS, Place.LEFT)


def has_lost_memory(host: Libvirtd, id: ServerId) -> bool:
    """Of a domain that the other host has no QEMU of any more. libvirt may still be about to note
    that all of it has come."""
    return not wait_until(lambda: look(host, id) is not Place.LEFT, _NOTE_PATIENCE)


def describe(host: Libvirtd, id: ServerId) -> tuple[str, str]:
    """As it runs, and as it is defined: as another host may take them."""
    with get_domain(host, id, "reading the description of") as domain:
        return domain.XMLDesc(names.MIGRATABLE), domain.XMLDesc(names.MIGRATABLE_DEFINED)


def migrate(
    source: Libvirtd,
    destination: Libvirtd,
    id: ServerId,
    passage: Passage,
    watch: Callable[[Job], None],
) -> tuple[float, float | None]:
    """When the guest was paused, by time.monotonic(), and when libvirt let it continue at the
    destination; None: it waits there to be resumed. ``watch`` is told what was carried every now
    and then, and may end it by an error. Whatever is raised: where the domain is now, look()
    tells."""
    done: Future[None] = Future()
    left = False
    with (
        _noting(names.SUSPENDED, source, id) as paused,
        _noting(names.RESUMED, destination, id) as resumed,
    ):
        began = (source, destination, id, passage, done)
        threading.Thread(target=_call, args=began, daemon=True).start()
        try:
            while not wait([done], POLL).done:
                job = replace(_read_job(source, id), left=left)
                watch(job)
                if job.rounds > 1 and passage.options.post_copy and not left:
                    left = _start_post_copy(source, id)
        except BaseException:
            with suppress(MillpondError):  # what is raised is why
                abort(source, id)
            wait([done], None if left else END_PATIENCE)  # without us its memory would be lost
            raise
        done.result()
    return paused[0] if paused else time.monotonic(), resumed[0] if resumed else None


def _call(
    source: Libvirtd, destination: Libvirtd, id: ServerId, passage: Passage, done: "Future[None]"
) -> None:
    try:
        with get_domain(source, id, "migrating", slow=True) as domain:
            if passage.route.peer:
                domain.migrateToURI3(passage.route.peer, passage.parameters, passage.flags)
            else:
                _call_both(domain, destination, id, passage)
    except BaseException as error:  # whoever waits for it is to hear of it
        done.set_exception(error)
    else:
        done.set_result(None)


def _call_both(domain: Any, destination: Libvirtd, id: ServerId, passage: Passage) -> None:
    """An error is the source's, unless the connection to the destination was lost."""
    failure: Exception | None = None
    with destination.calling(f"receiving domain {id}", slow=True) as there:
        for left in reversed(range(_TRIES)):
            try:
                domain.migrate3(there, passage.parameters, passage.flags)
                return
            except names.Error as error:
                if not there.isAlive():
                    raise
                failure = error
            if not left or _PORT_TAKEN not in str(failure):
                break
            time.sleep(POLL)
    if failure:
        raise failure


@contextmanager
def _noting(wanted: int, host: Libvirtd, id: ServerId) -> Iterator[list[float]]:
    """The times of such events."""
    times: list[float] = []

    def note(domain: str, event: int) -> None:
        if (domain, event) == (id, wanted):
            times.append(time.monotonic())

    with host.lifecycle.heard_by(note):
        yield times


def _read_job(host: Libvirtd, id: ServerId) -> Job:
    """Nothing where there is none, or the domain is gone: that is no error of the migration."""
    try:
        with get_domain(host, id, "asking for the migration of") as domain:
            found = domain.jobStats(0)
    except MillpondError:
        return Job()
    return Job(
        memory=found.get(names.MEMORY_DONE, 0),
        disks=found.get(names.DISK_DONE, 0),
        rounds=found.get(names.MEMORY_ROUND, 0),
    )


def _start_post_copy(host: Libvirtd, id: ServerId) -> bool:
    """Whether it has begun. A migration that is about to end is no error."""
    with suppress(LibvirtFailed), get_domain(host, id, "starting the post-copy of") as domain:
        domain.migrateStartPostCopy(0)
        return True
    return False


def has_job(host: Libvirtd, id: ServerId) -> bool:
    with host.calling(f"asking for the migration of domain {id}") as connection:
        domain = libvirtd.find_domain(connection, id)
        return bool(domain and domain.isActive() and domain.jobInfo()[0] != names.NO_JOB)


def abort(host: Libvirtd, id: ServerId) -> bool:
    """Whether there was one to be aborted. One in its post-copy cannot be."""
    try:
        with get_domain(host, id, "aborting the migration of") as domain:
            domain.abortJob()
    except LibvirtFailed as error:
        if error.code not in (names.OPERATION_INVALID, libvirtd.NO_SUCH_DOMAIN):
            raise
        return False
    return True


def end_job(host: Libvirtd, id: ServerId, patience: float) -> bool:
    """Whether none is under way any more: libvirt may go on with one whose client died, or be
    about to give it up."""
    if has_job(host, id):
        abort(host, id)
    return wait_until(lambda: not has_job(host, id), patience)


def is_cpu_known(host: Libvirtd, cpu: str, machine: str, virt_type: str) -> bool:
    """Whether the host can give its guest all that this CPU has."""
    with host.calling("comparing CPUs") as connection:
        found = connection.compareHypervisorCPU(None, None, machine or None, virt_type, cpu, 0)
        return found not in names.INCOMPATIBLE
