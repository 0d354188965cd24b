"""Let a guest power itself off, and start it again if what that was for came to nothing."""

from collections.abc import Callable

from millpond.errors import GuestStaysOn, Tool
from millpond.hosts.host import Host
from millpond.libvirt.domains import ON
from millpond.model.server import Server
from millpond.servers import steps
from millpond.system.waiting import wait_until

Tell = Callable[[str], None]
"""What is waited for, for people."""

_QUIET = 1.0
"""Seconds that nobody need be told of."""


def shut_down(host: Host, patience: float, tell: Tell, server: Server) -> None:
    """As stop() does it; one that is off is no error."""
    state = host.domains.state(server.id)
    if state not in ON:
        return
    if not patience or state == "crashed":
        host.domains.power_off(server.id)
        return
    if state not in ("running", "stopping"):
        unpaused = f" before '{Tool.SERVER} unpause {server.name}'" if state == "paused" else ""
        reason = f"it is {state}, and its guest cannot power itself off{unpaused}"
        raise GuestStaysOn(server.name, reason)
    host.domains.shutdown(server.id)
    first = min(_QUIET, patience)
    if wait_until(lambda: host.domains.state(server.id) not in ON, first):
        return
    tell(f"waiting for the guest of {server.name} to power off, {patience:g} s at the most")
    if not wait_until(lambda: host.domains.state(server.id) not in ON, patience - first):
        raise GuestStaysOn(server.name, f"its guest has not powered off within {patience:g} s")


def start_again(host: Host, ran: bool, server: Server) -> None:
    """As an undo of shut_down(): one that ``ran`` before."""
    if ran:
        steps.power_on(host, server)
        steps.sync_autostart(host, server)
