"""The file systems of a running guest, frozen and thawed by its agent."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from millpond.libvirt.domains import get_domain
from millpond.model.names import ServerId
from millpond.system import libvirtd
from millpond.system.libvirtd import Libvirtd
from millpond.xml.domain import DomainXml

CHANNEL = "org.qemu.guest_agent.0"

_PATIENCE = 20
"""Seconds that the agent has: it writes to disk all that the guest has not yet written."""


def has_agent(domain: DomainXml) -> bool:
    """Whether one has opened its channel in the running guest; it may be silent all the same."""
    return any(each.name == CHANNEL and each.state == "connected" for each in domain.channels)


class GuestFileSystems:
    """Raises LibvirtFailed where no agent answers in time. A guest that was asked too late may
    freeze its file systems afterwards: so they are thawed whatever the answer was."""

    def __init__(self, host: Libvirtd) -> None:
        self._host = host

    def freeze(self, id: ServerId) -> None:
        with self._asking(id, "freezing the file systems of") as domain:
            domain.fsFreeze(None, 0)

    def thaw(self, id: ServerId) -> None:
        """Those that are not frozen are no error."""
        with self._asking(id, "thawing the file systems of") as domain:
            domain.fsThaw(None, 0)

    @contextmanager
    def _asking(self, id: ServerId, doing: str) -> Iterator[Any]:
        with get_domain(self._host, id, doing, slow=True) as domain:
            domain.agentSetResponseTimeout(_PATIENCE, 0)
            try:
                yield domain
            finally:
                domain.agentSetResponseTimeout(libvirtd.AGENT_UNLIMITED, 0)
