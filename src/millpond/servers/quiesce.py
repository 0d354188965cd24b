"""A guest's file systems at rest for the moment of a snapshot."""

import logging

from millpond.errors import LibvirtFailed, NotQuiesced
from millpond.hosts.host import Host
from millpond.libvirt.domains import ON
from millpond.libvirt.guest_filesystems import GuestFileSystems
from millpond.model.server import Server

LOG = logging.getLogger(__name__)


class Quiescence:
    """By the guest agent. A silent one makes the snapshot crash-consistent, unless somebody
    ``insists``. Thawed are they in any case: a guest may do late what it was asked for."""

    def __init__(self, host: Host, *, insists: bool = False) -> None:
        self._host = host
        self._insists = insists
        self.reached = False

    def begin(self, server: Server) -> None:
        try:
            GuestFileSystems(self._host.libvirtd).freeze(server.id)
        except LibvirtFailed as error:
            self.restore(server)
            if self._insists:
                raise NotQuiesced(server.name, error.detail) from error
            LOG.warning("%s: crash-consistent, its agent is silent: %s", server.name, error.detail)
        else:
            self.reached = True

    def end(self, server: Server) -> None:
        if self.reached:
            GuestFileSystems(self._host.libvirtd).thaw(server.id)

    def restore(self, server: Server) -> None:
        """The same after a failure, or in place of a process that died. Nobody but the agent could
        do it: one that does not answer is no reason to leave all else as it is."""
        if self._host.domains.state(server.id) not in ON:
            return
        try:
            GuestFileSystems(self._host.libvirtd).thaw(server.id)
        except LibvirtFailed as error:
            LOG.warning(
                "%s: if its file systems stay frozen, 'virsh domfsthaw' or a hard reboot thaws "
                "them; its agent did not: %s",
                server.name,
                error.detail,
            )
