"""Every error that Millpond raises on purpose.

One base class. The facts are attributes, the message is one plain sentence, the hint says what
to do about it, and the exit status belongs to the class. ``docs/errors.md`` lists the statuses.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


class MillpondError(Exception):
    message: ClassVar[str] = "unexpected failure"
    hint: ClassVar[str] = ""
    exit_code: ClassVar[int] = 1

    def __str__(self) -> str:
        return self.message.format(self=self)

    @property
    def advice(self) -> str:
        return self.hint.format(self=self)


# 2: what was typed or configured cannot be meant


class BadInput(MillpondError):
    exit_code = 2


@dataclass(eq=False)
class BadSize(BadInput):
    text: str
    message = "{self.text!r} is not a size"
    hint = "write a number with an optional unit, such as 512M, 10G or 1.5T"


@dataclass(eq=False)
class BadName(BadInput):
    kind: str
    name: str
    message = "{self.name!r} cannot be the name of {self.kind}"
    hint = (
        "begin with a letter or a digit and go on with letters, digits, '.', '-', '_', '+' or "
        "spaces, 200 at the most"
    )


@dataclass(eq=False)
class BadOption(BadInput):
    option: str
    reason: str
    advised: str = ""
    message = "{self.option}: {self.reason}"
    hint = "{self.advised}"


@dataclass(eq=False)
class WhichHost(BadInput):
    known: tuple[str, ...]
    message = "there are several hosts"

    @property
    def advice(self) -> str:
        return f"say which one: --host {' or '.join(self.known)}"


@dataclass(eq=False)
class BadConfiguration(BadInput):
    """Every error of the configuration at once (B9)."""

    problems: tuple[BadOption, ...]
    hint = "'millpond config sample' prints every option with what it allows"

    def __str__(self) -> str:
        return "\n".join(
            f"{each}{f' ({each.advice})' if each.advice else ''}" for each in self.problems
        )


@dataclass(eq=False)
class DiskTooSmall(BadInput):
    asked: str
    needed: str
    image: str
    enough: str
    message = (
        "a disk of {self.asked} is smaller than image {self.image!r}, which needs {self.needed}"
    )
    hint = "ask for --disk {self.enough} or more, or leave --disk out"


# 3: it is not there


class NotFound(MillpondError):
    exit_code = 3


@dataclass(eq=False)
class ImageNotFound(NotFound):
    image: str
    message = "there is no image {self.image!r}"
    hint = "'millpond image list' shows what there is, 'millpond image add FILE' adds one"


@dataclass(eq=False)
class FileNotReadable(NotFound):
    path: Path
    reason: str
    message = "cannot read {self.path}: {self.reason}"
    hint = "check the path and its permissions"


@dataclass(eq=False)
class NothingAtUrl(NotFound):
    url: str
    message = "there is nothing at {self.url}"
    hint = "check the address with who published it"


@dataclass(eq=False)
class ServerNotFound(NotFound):
    server: str
    message = "there is no server {self.server!r}"
    hint = "'millpond server list' shows what there is"


@dataclass(eq=False)
class HostNotConfigured(NotFound):
    server: str
    host: str
    message = "server {self.server!r} is on host {self.host!r}, which is not configured"
    hint = "name it in enabled_hosts, with a section [host:{self.host}]"


@dataclass(eq=False)
class NoLegacyServer(NotFound):
    id: str
    message = "no server {self.id!r} has disks in Nova's legacy layout on this host"
    hint = "'millpond transition status' lists those that have"


@dataclass(eq=False)
class PoolNotFound(NotFound):
    pool: str
    message = "there is no storage pool {self.pool!r}"
    hint = "'millpond pool list' shows what there is"


@dataclass(eq=False)
class VolumeNotFound(NotFound):
    pool: str
    name: str
    message = "there is no volume {self.name!r} in pool {self.pool!r}"
    hint = "'millpond pool show {self.pool}' lists its volumes"


@dataclass(eq=False)
class TemplateNotFound(NotFound):
    template: str
    message = "there is no template {self.template!r}, and none of an image of that name"
    hint = "'millpond cache list' shows what there is, 'millpond cache fetch IMAGE' prepares one"


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
    hint = "'millpond server start {self.server}' starts it; --log shows what it printed before"


@dataclass(eq=False)
class VolumeMissing(NotFound):
    location: str
    message = "an image is said to lie at {self.location}, and nothing is there"
    hint = "upload it to its source again, or ask who runs that"


# 4: it is there already, or something else is in the way


class Conflict(MillpondError):
    exit_code = 4


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
class VolumeExists(Conflict):
    pool: str
    name: str
    message = "volume {self.name!r} already exists in pool {self.pool!r}"
    hint = "'millpond doctor' says whose it is"


@dataclass(eq=False)
class ImageInUse(Conflict):
    image: str
    servers: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    message = "image {self.image!r} is needed by {self.listed}"
    hint = "remove what needs it first"

    @property
    def listed(self) -> str:
        return ", ".join([*self.servers, *(f"image {each!r}" for each in self.images)])


@dataclass(eq=False)
class ImageNotActive(Conflict):
    image: str
    status: str
    message = "image {self.image!r} cannot be used now: its status in Glance is {self.status!r}"
    hint = "'openstack image show {self.image}' tells more; it must be 'active'"


@dataclass(eq=False)
class VolumeNotReady(Conflict):
    volume: str
    status: str
    message = "volume {self.volume} of Cinder, which has an image, is in the state {self.status}"
    hint = "'openstack volume show {self.volume}' may say why; wait, or upload the image again"


@dataclass(eq=False)
class TemplateInUse(Conflict):
    template: str
    users: tuple[str, ...]
    message = "template {self.template} is the base of {self.listed}"
    hint = "delete those disks first"

    @property
    def listed(self) -> str:
        return ", ".join(self.users)


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
    hint = "'millpond doctor --mend' finishes or undoes it; 'millpond server delete' removes it"


@dataclass(eq=False)
class DiskUnfinished(Conflict):
    server: str
    role: str
    message = "disk {self.role!r} of server {self.server!r} was begun and never finished"
    hint = "rebuild the server, or delete it: nothing of its user's is on that disk"


@dataclass(eq=False)
class WrongState(Conflict):
    server: str
    state: str
    needed: str
    message = "server {self.server!r} is {self.state}; this needs it to be {self.needed}"
    hint = "'millpond server show {self.server}' tells more"


@dataclass(eq=False)
class AlreadyAdopted(Conflict):
    id: str
    name: str
    message = "server {self.id} is Millpond's already, named {self.name!r}"
    hint = "'millpond server show {self.name}' shows it"


@dataclass(eq=False)
class NotAdoptable(Conflict):
    id: str
    reasons: tuple[str, ...]
    message = "server {self.id} cannot be adopted: {self.listed}"
    hint = "put that right with Nova or virsh, and try again; docs/legacy.md says what is possible"

    @property
    def listed(self) -> str:
        return "; ".join(self.reasons)


@dataclass(eq=False)
class StillNeeded(Conflict):
    volume: str
    server: str
    message = (
        "volume {self.volume!r} stays: server {self.server!r} is on it, and what it wrote is not "
        "in its disk yet"
    )
    hint = "'millpond doctor --mend' writes it into the disk and removes the volume"


@dataclass(eq=False)
class TargetTaken(Conflict):
    target: str
    domain: str
    message = "domain {self.domain!r} has another device at {self.target}"
    hint = "'virsh domblklist {self.domain}' shows what somebody attached there"


@dataclass(eq=False)
class GuestHoldsOn(Conflict):
    target: str
    seconds: int
    message = "the guest has not released disk {self.target} within {self.seconds} s"
    hint = (
        "it may still do so: unmount the disk in the guest, or stop the server, and run the same "
        "command again"
    )


# 5: an image that is not what it says or must not be trusted


class Refused(MillpondError):
    exit_code = 5


@dataclass(eq=False)
class ImageRefused(Refused):
    image: str
    reason: str
    advised: str = ""
    message = "image {self.image} is refused: {self.reason}"
    hint = "{self.advised}"


@dataclass(eq=False)
class DiskRefused(Refused):
    path: str
    reason: str
    message = "the disk {self.path} is refused: {self.reason}"
    hint = "'millpond transition status' shows what it belongs to"


@dataclass(eq=False)
class Unsupported(Refused):
    what: str
    reason: str
    advised: str = ""
    message = "{self.what} is not possible here: {self.reason}"
    hint = "{self.advised}"


@dataclass(eq=False)
class NotLinkable(Refused):
    reason: str
    message = "an image cannot be linked: {self.reason}"
    hint = "see docs/linking.md for what can be; with another handler it is downloaded"


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


# 6: the host, its libvirt or its pools are not usable now


class HostProblem(MillpondError):
    exit_code = 6


@dataclass(eq=False)
class HostUnreachable(HostProblem):
    uri: str
    reason: str
    advised: str = (
        "start libvirtd ('systemctl start libvirtd', or 'make setup' where there is no systemd)"
    )
    message = "cannot reach libvirt at {self.uri}: {self.reason}"
    hint = "{self.advised}"


@dataclass(eq=False)
class NotReported(HostProblem):
    host: str
    message = "host {self.host!r} was never reported to Placement"
    hint = "'millpond host list --refresh' reports it"


@dataclass(eq=False)
class HostWithoutUuid(HostProblem):
    uri: str
    message = "libvirt at {self.uri} does not tell its host's UUID"
    hint = "set host_uuid in its libvirtd.conf and restart it"


@dataclass(eq=False)
class ConnectionLost(HostProblem):
    uri: str
    doing: str
    message = "the connection to libvirt at {self.uri} was lost while {self.doing}"
    hint = "try again; 'millpond doctor' shows what was left in the middle"


@dataclass(eq=False)
class TransferIncomplete(HostProblem):
    volume: str
    length: int
    expected: int
    message = "only {self.length} of {self.expected} bytes came of volume {self.volume}"
    hint = "try again; if it stays so, look into libvirtd's log on the host"


@dataclass(eq=False)
class TooOld(HostProblem):
    what: str
    version: str
    needed: str
    message = "{self.what} {self.version} is too old: Millpond needs {self.needed} or newer"
    hint = "upgrade the host (Debian 12 has what is needed)"


@dataclass(eq=False)
class ForeignOwner(HostProblem):
    host: str
    server: str
    owner: str
    message = (
        "host {self.host!r} has servers of another Millpond state directory "
        "(owner {self.owner}, server {self.server!r})"
    )
    hint = (
        "use that state directory, or, if it is lost, 'millpond doctor --adopt' to take the "
        "servers over"
    )


@dataclass(eq=False)
class CacheOfAnother(HostProblem):
    pool: str
    volume: str
    owner: str
    message = (
        "the cache whose records are in pool {self.pool!r} is that of another host or state "
        "directory ({self.owner})"
    )
    hint = (
        "give each host that only libvirt reaches a base_images_pool_path of its own; if that "
        "state directory is lost: 'virsh vol-delete {self.volume} --pool {self.pool}' on the host"
    )


@dataclass(eq=False)
class PoolInactive(HostProblem):
    pool: str
    message = "storage pool {self.pool!r} is defined but not active"
    hint = "'virsh pool-start {self.pool}', or 'millpond doctor --mend', starts it"


@dataclass(eq=False)
class PoolOfAnotherType(HostProblem):
    pool: str
    type: str
    needed: str
    message = "storage pool {self.pool!r} is of type '{self.type}', not '{self.needed}'"
    hint = "name another pool in [libvirt], or undefine this one if nothing needs it"


@dataclass(eq=False)
class PoolElsewhere(HostProblem):
    pool: str
    path: str
    needed: str
    message = "storage pool {self.pool!r} is at {self.path}, not at {self.needed}"
    hint = "set its path in [libvirt] to {self.path}, or define the pool at {self.needed}"


@dataclass(eq=False)
class PoolUnusable(HostProblem):
    pool: str
    reason: str
    message = "storage pool {self.pool!r} cannot be used: {self.reason}"
    hint = "put that right, then 'millpond doctor --mend' starts the pool again"


@dataclass(eq=False)
class PoolBusy(HostProblem):
    pool: str
    message = (
        "storage pool {self.pool!r} stays busy: libvirt refuses to refresh it while a volume is "
        "being built"
    )
    hint = "wait for the copies in that pool to end and try again"


class CephUnreachable(HostProblem):
    message = "the Ceph cluster does not answer, or not to this user"
    hint = (
        "look at its monitors and at rbd_user; their key is in the libvirt secret that "
        "rbd_secret_uuid names and in the keyring of images_rbd_ceph_conf"
    )


@dataclass(eq=False)
class NoSpace(HostProblem):
    where: str
    needed: str
    available: str
    message = "no space left in {self.where}: {self.needed} needed, {self.available} available"
    hint = "free some space there ('millpond doctor' shows what takes it)"


@dataclass(eq=False)
class CacheFull(HostProblem):
    needed: str
    bound: str
    taken: str
    message = (
        "the cache may have {self.bound} (max_bytes): a template of {self.needed} does not fit "
        "beside {self.taken} that are used or pinned"
    )
    hint = "raise [image_cache] max_bytes, or let go what 'millpond cache list' shows as used"


@dataclass(eq=False)
class LibvirtFailed(HostProblem):
    doing: str
    code: int
    detail: str
    message = "libvirt failed while {self.doing}: {self.detail}"
    hint = "'millpond doctor' checks the host; libvirtd's log says more"


@dataclass(eq=False)
class GuestWritesFaster(HostProblem):
    target: str
    seconds: float
    message = (
        "what the guest wrote while disk {self.target} was copied is not in the disk yet: for "
        "{self.seconds} s the guest has written as fast as that is written back"
    )
    hint = (
        "nothing is lost, and writing back goes on; when the guest writes less, or is stopped, "
        "'millpond doctor --mend' finishes it"
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
    hint = "stop the server, then 'millpond doctor --mend' removes the volume"


@dataclass(eq=False)
class NotWrittenBack(HostProblem):
    target: str
    message = (
        "what the guest wrote while disk {self.target} was copied could not be written into it: "
        "QEMU gave up"
    )
    hint = (
        "nothing is lost: see whether the disk's pool is full, then 'millpond doctor --mend' "
        "tries again"
    )


@dataclass(eq=False)
class NotUndone(HostProblem):
    verb: str
    message = "not everything that {self.verb!r} had begun could be undone"
    hint = "'millpond doctor' shows why; 'millpond doctor --mend' tries again"


# 7: a tool that we started failed or broke its limits


@dataclass(eq=False)
class ToolFailed(MillpondError):
    tool: str
    reason: str
    status: int = 0
    """Its exit status, which for some tools is the error's number."""
    message = "{self.tool} failed: {self.reason}"
    hint = "run the command again with -vv to see how it was called"
    exit_code = 7


@dataclass(eq=False)
class VolumeNotConnected(MillpondError):
    reason: str
    message = "a volume of Cinder cannot be reached from this host: {self.reason}"
    hint = "see docs/linking.md for what a host needs; images are downloaded meanwhile"
    exit_code = 7


# 8: the state directory


class StateProblem(MillpondError):
    exit_code = 8


@dataclass(eq=False)
class StateNotWritable(StateProblem):
    path: Path
    reason: str
    message = "cannot write to the state directory at {self.path}: {self.reason}"
    hint = "run as root, or as a member of its group; 'millpond doctor' shows its owner"


class UnreadableRecord(StateProblem):
    path: Path


@dataclass(eq=False)
class DamagedRecord(UnreadableRecord):
    path: Path
    reason: str
    message = "the record {self.path} cannot be used: {self.reason}"
    hint = "'millpond doctor' says what it belongs to and what can be rebuilt"


@dataclass(eq=False)
class RecordTooLong(StateProblem):
    disk: str
    length: int
    most: int
    message = (
        "the record of disk {self.disk} has {self.length} characters, and Nova takes {self.most}"
    )
    hint = "shorten the names of the storage pools in nova.conf"


@dataclass(eq=False)
class UnknownOperation(StateProblem):
    verb: str
    step: str
    message = "this version knows no operation {self.verb!r} with a step {self.step!r}"
    hint = "use the version of Millpond that began it, or 'millpond server delete'"


@dataclass(eq=False)
class NewerRecord(UnreadableRecord):
    """It is not damaged: nothing takes its place."""

    path: Path
    schema: int
    known: int
    message = (
        "the record {self.path} was written by a newer Millpond "
        "(schema {self.schema}, known {self.known})"
    )
    hint = "use that version of Millpond again"


# 9: what is fetched from elsewhere does not come


@dataclass(eq=False)
class FetchFailed(MillpondError):
    url: str
    """Without credentials: what is shown and logged."""
    reason: str
    message = "cannot fetch {self.url}: {self.reason}"
    hint = "check the address, and from this host its network, proxy and certificates"
    exit_code = 9


class FetchInterrupted(FetchFailed):
    """Another try may go better."""

    hint = "try again later; [http] in the configuration says how long and how often to try"


class FetchForbidden(FetchFailed):
    """It is there, but not for us."""

    hint = "check the user and the password; the policy of a Glance has the rule download_image"


@dataclass(eq=False)
class UploadFailed(MillpondError):
    image: str
    reason: str
    message = "image {self.image} cannot be uploaded: {self.reason}"
    hint = "check that Glance answers, and what it lets this user store; then try again"
    exit_code = 9


class CannotResume(FetchInterrupted):
    """What was fetched so far is of no use: begin again."""


# Placement and scheduling: 2, 4, 5, 6 and 9, as above


@dataclass(eq=False)
class UnknownTrait(BadInput):
    traits: tuple[str, ...]
    message = "Placement knows no trait {self.listed}"
    hint = (
        "look for a mistake in the flavour's and the image's 'trait:' properties; a trait of your "
        "own begins with CUSTOM_ and is made in Placement first"
    )

    @property
    def listed(self) -> str:
        return ", ".join(self.traits)


@dataclass(eq=False)
class BadRequirement(BadInput):
    name: str
    value: str
    reason: str
    message = "{self.name} = {self.value!r} cannot be asked of a host: {self.reason}"
    hint = (
        "trait:NAME takes required or forbidden, and a trait's name; hw_architecture takes names "
        "such as x86_64 or aarch64"
    )


@dataclass(eq=False)
class NoSuchHost(NotFound):
    host: str
    message = "there is no host {self.host!r}"
    hint = "'millpond host list' shows what there is; enabled_hosts names them"


@dataclass(eq=False)
class HostsShareUuid(Conflict):
    uuid: str
    hosts: tuple[str, ...]
    message = "{self.listed} have one UUID, {self.uuid}: Placement would take them for one host"
    hint = (
        "if they are one machine, name it once; else set host_uuid in the libvirtd.conf of one "
        "of them and restart it"
    )

    @property
    def listed(self) -> str:
        return " and ".join(self.hosts)


@dataclass(eq=False)
class ProviderTaken(Conflict):
    name: str
    held: str
    uuid: str
    message = (
        "Placement has a resource provider named {self.name!r} with the UUID {self.held}, and "
        "host {self.name!r} has {self.uuid}"
    )
    hint = (
        "if Nova runs that host too, take another name for it in enabled_hosts; if the host was "
        "made anew, remove its old provider once nothing is allocated there"
    )


@dataclass(eq=False)
class ProviderRenamed(Conflict):
    uuid: str
    known: str
    name: str
    message = "the UUID {self.uuid} of host {self.name!r} is that of {self.known!r} in Placement"
    hint = (
        "two hosts with one UUID need another host_uuid in the libvirtd.conf of one of them; a "
        "host that was renamed keeps its old name in enabled_hosts"
    )


@dataclass(eq=False)
class PlacementBusy(Conflict):
    what: str
    message = "others keep changing {self.what} in Placement at the same moment"
    hint = "try again"


@dataclass(eq=False)
class ImageTypeUnknown(Refused):
    format: str
    message = "no host can promise to use an image {self.shown}"
    hint = (
        "hosts are filtered by image types (filter_hosts_by_image_type_support), and the image "
        "has none that Placement has a trait for: set its disk_format"
    )

    @property
    def shown(self) -> str:
        return f"of the format {self.format!r}" if self.format else "without a format"


@dataclass(eq=False)
class NoValidHost(HostProblem):
    why: str
    """What is missing, in a few words."""
    hosts: tuple[str, ...]
    """Each with what it lacks."""
    advised: str
    message = "no valid host: {self.why}{self.listed}"
    hint = "{self.advised}"

    @property
    def listed(self) -> str:
        return f" ({'; '.join(self.hosts)})" if self.hosts else ""


@dataclass(eq=False)
class NoRoom(HostProblem):
    """A claim that Placement refused: what was free when it was asked is not any more."""

    reason: str
    message = "there is no room: {self.reason}"
    hint = "choose another host, or wait until servers there are deleted"


class PlacementProblem(MillpondError):
    exit_code = 9


@dataclass(eq=False)
class PlacementUnreachable(PlacementProblem):
    reason: str
    message = "Placement cannot be reached: {self.reason}"
    hint = "see whether it runs, and whether [placement] leads to it"


@dataclass(eq=False)
class PlacementRefused(PlacementProblem):
    reason: str
    message = "Placement does not let us in: {self.reason}"
    hint = (
        "check the user, the password and the project in [placement]; the user needs a role that "
        "Placement's policy allows to write, such as service or admin"
    )


@dataclass(eq=False)
class PlacementFailed(PlacementProblem):
    doing: str
    reason: str
    message = "Placement failed at {self.doing}: {self.reason}"
    hint = "its log says more; 'millpond doctor --placement' compares what it has with our records"


class NotInPlacement(PlacementFailed):
    """There is no such provider or trait."""


class PlacementMisunderstands(PlacementFailed):
    """It takes what it was asked for a mistake."""


class StillAllocated(PlacementFailed):
    """What is to go is in use."""


@dataclass(eq=False)
class PlacementTooOld(PlacementProblem):
    offered: str
    needed: str
    message = (
        "Placement knows its API up to {self.offered} only: Millpond needs {self.needed} or newer"
    )
    hint = "upgrade it: {self.needed} came with OpenStack Train"
