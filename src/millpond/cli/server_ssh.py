"""millpond server ssh: the way into a guest."""

import re
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from millpond.cli.server import Shown, app
from millpond.errors import BadOption, NoAddress, NotFound, WrongState
from millpond.hosts.deployment import Deployment
from millpond.libvirt.domains import ON
from millpond.model.server import NetworkKind, Server
from millpond.servers import across_hosts
from millpond.system.ports import speaks_ssh
from millpond.system.process import become
from millpond.system.waiting import wait_until

SSH = 22
_USER = re.compile(r"[A-Za-z_][\w.-]*")
_NAMED_LIKE_USERS = frozenset(
    {"debian", "ubuntu", "fedora", "rocky", "almalinux", "alpine", "arch", "freebsd"}
)
"""Distributions whose cloud images have a user of the same name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Endpoint:
    address: str
    port: int = SSH


@app.command()
def ssh(
    ctx: typer.Context,
    server: Shown,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND...]", help="What the guest runs, not a shell."),
    ] = None,
    user: Annotated[
        str, typer.Option(help="Default: the image's os_admin_user, or its distribution's.")
    ] = "",
    identity: Annotated[
        Path | None, typer.Option("--identity", "-i", help="File of the private key.")
    ] = None,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait until the guest's ssh answers.")
    ] = 0,
) -> None:
    """Log into a running server by ssh, or run a command in it."""
    deployment = Deployment.load(ctx.obj.config_files)
    host, found = deployment.find(server, shortened=True)
    who = user or _default_user(deployment, found)
    if who and not _USER.fullmatch(who):
        raise BadOption("--user", f"{who!r} is no user's name", "write such as debian")
    uri = urlsplit(host.settings.libvirt.connection_uri)
    jump = uri.netloc if uri.scheme.endswith("+ssh") else ""
    remote = "" if jump else uri.hostname or ""
    where = _wait_for_endpoint(deployment, found, remote, wait, is_probed=not jump)
    known_hosts = deployment.settings.state_path / "known_hosts"
    become(
        "ssh",
        # By the id, not by the address, which may have been another server's before.
        *("-o", f"HostKeyAlias={found.id}"),
        *("-o", f"UserKnownHostsFile={known_hosts}"),
        *("-o", "StrictHostKeyChecking=accept-new"),
        *("-o", "HashKnownHosts=no"),  # so that people find a server's line
        *(("-J", jump) if jump else ()),
        *(("-l", who) if who else ()),
        *(("-i", str(identity)) if identity else ()),
        *("-p", str(where.port)),
        "--",
        where.address,
        *(command or ()),
    )


def _wait_for_endpoint(
    deployment: Deployment, server: Server, remote: str, seconds: float, *, is_probed: bool
) -> _Endpoint:
    """``remote`` names a host whose loopback is not reached from where ssh connects. Raises
    NoAddress if there is none. One that does not answer in time is for ssh to say."""
    found: list[_Endpoint] = []

    def look() -> bool:
        found[:] = _endpoints(deployment, server, remote)
        if not seconds or not is_probed:
            return bool(found)
        spoke = [each for each in found if speaks_ssh(each.address, each.port)]
        found[:] = spoke or found
        return bool(spoke)

    if not look() and seconds:
        wait_until(look, seconds)
    if not found:
        raise NoAddress(server.name, _explain_no_address(server))
    return found[0]


def _endpoints(deployment: Deployment, server: Server, remote: str) -> list[_Endpoint]:
    """Published ports first: they are at hand."""
    state = across_hosts.states(deployment, [server])
    if state[server.id] not in ON:
        raise WrongState(server.name, state[server.id], "running")
    published = [
        _Endpoint(address=each.address.replace("0.0.0.0", remote or "127.0.0.1"), port=each.port)
        for nic in server.networks
        for each in nic.ports
        if (each.guest, each.protocol) == (SSH, "tcp")
        and not (remote and ip_address(each.address).is_loopback)
    ]
    known = across_hosts.addresses(deployment, [server], state)
    addresses = [each for nic in server.networks for each in known.get(nic.mac, ())]
    addresses.sort(key=lambda each: ip_address(each).version)
    return [*published, *(_Endpoint(address=each) for each in addresses)]


def _explain_no_address(server: Server) -> str:
    if any(each.kind is not NetworkKind.USER for each in server.networks):
        return (
            "its guest may still be booting: --wait 120 waits for it, and "
            f"'server console {server.name}' shows it"
        )
    return (
        "it is in no network that this host reaches: "
        f"'server nic add {server.name} --network default', or create it with --publish 2222:22"
    )


def _default_user(deployment: Deployment, server: Server) -> str:
    """Empty: as ssh itself decides."""
    properties = {}
    with suppress(NotFound):  # the image may be gone by now
        properties = dict(deployment.images.describe(server.image.id).properties)
    if user := properties.get("os_admin_user"):
        return user
    distribution = properties.get("os_distro") or re.split(r"[\W_]", server.image.name)[0]
    return distribution.lower() if distribution.lower() in _NAMED_LIKE_USERS else ""
