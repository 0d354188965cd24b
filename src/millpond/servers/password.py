"""Set the password of a user in a running guest, through its agent."""

import logging
import re
from contextlib import suppress

from millpond.errors import (
    AgentSilent,
    BadOption,
    GuestProblem,
    LibvirtFailed,
    NotFound,
    Tool,
    Unsupported,
    WrongState,
)
from millpond.hosts.host import Host
from millpond.libvirt.guest_agent import GuestAgent
from millpond.model.server import Server
from millpond.system.libvirtd import AGENT_SILENT, NO_AGENT

LOG = logging.getLogger(__name__)

_USER = re.compile(r"[A-Za-z_][\w.-]*\$?", re.A)
_PEOPLE = range(1000, 60000)
"""The ids of users that are no services, as Debian and others give them."""


def set_password(host: Host, server: Server, user: str, password: str) -> None:
    """It is in no message and in no log of ours."""
    agent = GuestAgent(host.libvirtd, server.id)
    try:
        agent.set_password(user, password)
    except TimeoutError:
        raise AgentSilent(server.name, "it began to, and went silent") from None
    except LibvirtFailed as error:
        raise _explain(agent, server, user, error) from error
    LOG.info("set the password of %s in server %s", user, server.name)


def check_ready(host: Host, server: Server, user: str) -> None:
    """Before anybody types a password."""
    if not _USER.fullmatch(user):
        raise BadOption("--user", f"{user!r} cannot be the name of a user", "write such as root")
    state = host.domains.state(server.id)
    if state != "running":
        raise WrongState(server.name, state or "missing", "running")


def _explain(agent: GuestAgent, server: Server, user: str, error: LibvirtFailed) -> Exception:
    if error.code == NO_AGENT:
        return Unsupported(
            f"setting a password in server {server.name!r}",
            "its domain has no channel of the guest agent",
            f"'{Tool.SERVER} reboot {server.name}' gives it one",
        )
    if error.code in AGENT_SILENT:
        return AgentSilent(server.name, error.detail)
    users = _users(agent)
    if users and user not in users:
        people = ", ".join(name for name, id in users.items() if id in _PEOPLE or id == 0)
        return NotFound(
            f"the guest of server {server.name!r} has no user {user!r}", f"it has {people}"
        )
    return GuestProblem(
        f"the guest of server {server.name!r} did not take the password: {error.detail}",
        "its agent may not be allowed to set it, or its rules for passwords refuse this one",
    )


def _users(agent: GuestAgent) -> dict[str, int]:
    """By its /etc/passwd; none, if the agent does not say."""
    found: dict[str, int] = {}
    with suppress(LibvirtFailed):
        content = agent.find_file("/etc/passwd") or b""
        for line in content.decode(errors="replace").splitlines():
            name, _, id, *_ = [*line.split(":"), "", "", ""]
            if id.isdecimal():
                found[name] = int(id[:9])
    return found
