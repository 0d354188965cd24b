"""Servers, their disks and what is under way on them."""

from dataclasses import dataclass

from millpond.errors.base import Conflict, HostProblem, NotFound, Refused, StateProblem


@dataclass(eq=False)
class HostNotConfigured(NotFound):
    server: str
    host: str
    message = "server {self.server!r} is on host {self.host!r}, which is not configured"
    hint = "name it in enabled_hosts, with a section [host:{self.host}]"


@dataclass(eq=False)
class DiskNotFound(NotFound):
    server: str
    role: str
    known: tuple[str, ...]
    message = "server {self.server!r} has no disk {self.role!r}"
    hint = "it has {self.listed}"

    @property
    def listed(self) -> str:
        return ", ".join(self.known)


@dataclass(eq=False)
class NoConsole(NotFound):
    server: str
    reason: str
    message = "server {self.server!r} has no console to show: {self.reason}"
    hint = "'{tool.SERVER} start {self.server}' starts it; --log shows what it printed before"


@dataclass(eq=False)
class NoAddress(NotFound):
    server: str
    advised: str
    message = "no address of server {self.server!r} is known"
    hint = "{self.advised}"


@dataclass(eq=False)
class NameTaken(Conflict):
    kind: str
    name: str
    message = "there is already {self.kind} named {self.name!r}"
    hint = "choose another name, or remove the other one first"


@dataclass(eq=False)
class Ambiguous(Conflict):
    kind: str
    name: str
    matches: tuple[str, ...]
    message = "{self.name!r} matches more than one {self.kind}: {self.listed}"
    hint = "write more of the id"

    @property
    def listed(self) -> str:
        return ", ".join(self.matches)


@dataclass(eq=False)
class Busy(Conflict):
    what: str
    message = "another operation is under way on {self.what}"
    hint = "wait for it to end and try again"


@dataclass(eq=False)
class Interrupted(Conflict):
    server: str
    verb: str
    step: str
    message = (
        "server {self.server!r} was left in the middle of {self.verb!r}, at step {self.step!r}"
    )
    hint = "'{tool.REPAIR}' finishes or undoes it; '{tool.SERVER} delete' removes it"


@dataclass(eq=False)
class LeftUnfinished(Conflict):
    """Its host died, and evacuation cannot take the place of what was under way."""

    server: str
    host: str
    verb: str
    step: str
    message = (
        "server {self.server!r} was in the middle of {self.verb!r}, at step {self.step!r}, when "
        "host {self.host!r} died: only with that host it can be finished or undone"
    )
    hint = "keep the server, and bring the host back: then '{tool.REPAIR}' does so"


@dataclass(eq=False)
class WrongState(Conflict):
    server: str
    state: str
    needed: str
    message = "server {self.server!r} is {self.state}; this needs it to be {self.needed}"
    hint = "'{tool.SERVER} show {self.server}' says more"


@dataclass(eq=False)
class DiskInUse(Conflict):
    """Somebody has a disk of a server open whose host is said to be dead."""

    server: str
    reason: str
    message = "a disk of server {self.server!r} is in use: {self.reason}"
    hint = "its host is not fenced, a guest runs there: power the host off, and try again"


@dataclass(eq=False)
class ArchiveRefused(Refused):
    archive: str
    reason: str
    advised: str
    message = "{self.archive} cannot be imported: {self.reason}"
    hint = "{self.advised}"


@dataclass(eq=False)
class NotQuiesced(Conflict):
    server: str
    reason: str
    message = "the file systems of server {self.server!r} cannot be frozen: {self.reason}"
    hint = (
        "start qemu-guest-agent in the guest, or leave out --quiesce: then the snapshot is as "
        "after a power failure"
    )


@dataclass(eq=False)
class StillNeeded(Conflict):
    volume: str
    server: str
    message = (
        "volume {self.volume!r} stays: server {self.server!r} is on it, and what it wrote is not "
        "in its disk yet"
    )
    hint = "'{tool.REPAIR}' writes it into the disk and removes the volume"


@dataclass(eq=False)
class GuestStaysOn(Conflict):
    server: str
    reason: str
    message = "server {self.server!r} still runs: {self.reason}"
    hint = "--force (of reboot: --hard) powers it off; the guest is not asked"


@dataclass(eq=False)
class DiskOverlaid(Conflict):
    """By an overlay that is not ours: without it a guest would lose what it wrote."""

    server: str
    overlays: str
    message = "disks of server {self.server!r} are overlaid: {self.overlays}"
    hint = (
        "a snapshot by virsh does that; 'virsh blockcommit DOMAIN DISK --shallow --active "
        "--pivot' merges it while the domain runs, after 'virsh start' if it is off"
    )


@dataclass(eq=False)
class DetachTimeout(Conflict):
    target: str
    seconds: int
    message = "the guest has not released disk {self.target} within {self.seconds} s"
    hint = (
        "it may still do so: unmount the disk in the guest, or stop the server, and run the same "
        "command again"
    )


@dataclass(eq=False)
class DiskRefused(Refused):
    path: str
    reason: str
    message = "the disk {self.path} is refused: {self.reason}"
    hint = "'{tool.LEGACY}' shows what it belongs to"


@dataclass(eq=False)
class Unsupported(Refused):
    what: str
    reason: str
    advised: str = ""
    message = "{self.what} is not possible here: {self.reason}"
    hint = "{self.advised}"


@dataclass(eq=False)
class NeedsHostFiles(Refused):
    """libvirt cannot do it, and what lies on the host cannot be opened here either."""

    what: str
    reason: str
    path: str
    message = (
        "{self.what} is not possible here: {self.reason}, and {self.path} cannot be opened here"
    )
    hint = "run this on the host itself"


@dataclass(eq=False)
class GuestWritesFaster(HostProblem):
    target: str
    seconds: float
    message = (
        "what the guest wrote to the overlay of disk {self.target} is not in the disk yet: for "
        "{self.seconds} s the guest has written as fast as that is copied"
    )
    hint = (
        "nothing is lost, and writing back goes on; when the guest writes less, or is stopped, "
        "'{tool.REPAIR}' finishes it"
    )


@dataclass(eq=False)
class OverlayUnclear(HostProblem):
    volume: str
    server: str
    reason: str
    message = (
        "volume {self.volume!r} stays: whether QEMU still writes to it for server "
        "{self.server!r} could not be found out: {self.reason}"
    )
    hint = "stop the server, then '{tool.REPAIR}' removes the volume"


@dataclass(eq=False)
class NotWrittenBack(HostProblem):
    target: str
    message = (
        "what the guest wrote to the overlay of disk {self.target} could not be copied from "
        "there: QEMU gave up"
    )
    hint = "nothing is lost: see whether the disk's pool is full, then '{tool.REPAIR}' tries again"


@dataclass(eq=False)
class UnknownOperation(StateProblem):
    verb: str
    step: str
    message = "this version knows no operation {self.verb!r} with a step {self.step!r}"
    hint = "use the version of Millpond that began it, or '{tool.SERVER} delete'"
