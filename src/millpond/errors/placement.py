"""Placement and the scheduler."""

from dataclasses import dataclass

from millpond.errors.base import BadInput, Conflict, HostProblem, NotFound, Refused, ServiceProblem


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
    question: str = ""
    """Whether a similar one was meant."""
    message = "there is no host {self.host!r}"
    hint = "{self.question}'{tool.HOSTS}' shows what there is; enabled_hosts names them"


@dataclass(eq=False)
class NotReported(HostProblem):
    host: str
    message = "host {self.host!r} was never reported to Placement"
    hint = "'{tool.REPORT_HOSTS}' reports it"


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
        "recreated, remove its old provider once nothing is allocated there"
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


class PlacementProblem(ServiceProblem):
    """Of Placement's alone."""


@dataclass(eq=False)
class PlacementUnreachable(PlacementProblem):
    reason: str
    message = "Placement cannot be reached: {self.reason}"
    hint = "see whether it runs, and whether [placement] leads to it"


@dataclass(eq=False)
class PlacementRefused(PlacementProblem):
    reason: str
    message = "Placement denies access: {self.reason}"
    hint = (
        "check the user, the password and the project in [placement]; the user needs a role that "
        "Placement's policy allows to write, such as service or admin"
    )


@dataclass(eq=False)
class PlacementFailed(PlacementProblem):
    doing: str
    reason: str
    message = "Placement failed at {self.doing}: {self.reason}"
    hint = "its log says more; '{tool.COMPARE_PLACEMENT}' compares what it has with our records"


class NotInPlacement(PlacementFailed):
    """There is no such provider or trait."""


class PlacementBadRequest(PlacementFailed):
    """It takes what it was asked for a mistake."""


class StillAllocated(PlacementFailed):
    """What is to go is in use."""
