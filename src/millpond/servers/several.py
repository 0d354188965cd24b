"""Create several servers alike, some at a time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from millpond.errors import BadOption, MillpondError, NameTaken
from millpond.model.names import check_name
from millpond.model.server import Server
from millpond.records.records import Records
from millpond.servers.create import ServerRequest
from millpond.system.threads import each_of

_AT_ONCE = 4
"""libvirt serves five calls per connection at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotCreated:
    name: str
    error: MillpondError


def number_requests(request: ServerRequest, count: int) -> list[ServerRequest]:
    """Named NAME-1, NAME-2 and so on. What only one server can have is refused."""
    for network in request.networks:
        if network.mac or network.address or network.ports:
            reason = "servers cannot share a MAC, a fixed address or a published port"
            raise BadOption("--count", reason, "create those one by one")
    if request.guest and request.guest.hostname:
        reason = "servers cannot share a host name"
        raise BadOption("--count", reason, "leave --hostname out: each has its own name")
    names = (f"{request.name}-{number}" for number in range(1, count + 1))
    return [replace(request, name=check_name("a server", name)) for name in names]


def create_each(
    records: Records, requests: Sequence[ServerRequest], create: Callable[[ServerRequest], Server]
) -> Iterator[Server | NotCreated]:
    """The first one alone, so that what is wrong with all of them is said once, and nothing was
    made then. Of the others each is made, whatever becomes of the rest. Interrupted, those that
    are being made are finished, and no more begun."""
    for each in requests:
        if records.has_name(each.name):
            raise NameTaken("a server", each.name)

    def attempt(request: ServerRequest) -> Server | NotCreated:
        try:
            return create(request)
        except MillpondError as error:
            return NotCreated(name=request.name, error=error)

    yield create(requests[0])
    yield from each_of(requests[1:], attempt, _AT_ONCE, in_order=True)
