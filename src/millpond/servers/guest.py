"""Whether the guest of a server is up: what its agent says of cloud-init, or else its console."""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from millpond.errors import CloudInitFailed, GuestNotUp, LibvirtFailed, NoConsole
from millpond.hosts.host import Host
from millpond.libvirt.domains import ON
from millpond.libvirt.guest_agent import GuestAgent
from millpond.model.callbacks import noop
from millpond.model.server import Server
from millpond.system.waiting import wait_until

_EVERY = 1.0  # seconds
_STATE = "/run/cloud-init"
"""cloud-init makes it at each boot, before the agent starts, and soon its status.json there; or
it says there that it is disabled."""
_KERNEL = "Linux version "
_FINISHED = re.compile(
    r"Cloud-init v\. \S+ finished at |Reached target [^\n]{0,200}cloud-init", re.I
)
_FAILED = re.compile(r"Running module (\S{1,100}) [^\n]{0,200}failed")
_LOGIN = re.compile(r"^\S+ login: ", re.M)
_JUDGED = 512 * 1024
"""Bytes of the console, the last ones: a guest may print whatever it likes."""
_LONGEST, _MOST = 300, 5
"""Characters of an error, and errors; the guest has the rest."""


class Stage(StrEnum):
    """What is waited for."""

    BOOT = "its guest to boot"
    CLOUD_INIT = "cloud-init to finish"
    NOTHING = "nothing"


_MISSED = {
    Stage.BOOT: "neither cloud-init nor its agent nor a login prompt was there",
    Stage.CLOUD_INIT: "cloud-init has not finished",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    stage: Stage
    errors: tuple[str, ...] = ()
    """cloud-init's."""


def wait_for_guest(
    host: Host,
    server: Server,
    seconds: float,
    *,
    printed: bytes = b"",
    tell: Callable[[Stage], None] = noop,
) -> None:
    """Until cloud-init has finished or, where there is none, the agent answers or the console asks
    for a login. ``printed`` is what the console had said before the server was started."""
    agent = GuestAgent(host.libvirtd, server.id)
    progress = Progress(stage=Stage.BOOT)
    tell(progress.stage)

    def look() -> bool:
        nonlocal progress
        before = progress.stage
        if host.domains.state(server.id) not in ON:
            raise GuestNotUp(server.name, "it has powered itself off")
        progress = _ask(agent) or judge_console(read_console(host, server), printed)
        if progress.stage not in (before, Stage.NOTHING):
            tell(progress.stage)
        return progress.stage is Stage.NOTHING

    if not wait_until(look, seconds, _EVERY):
        raise GuestNotUp(server.name, f"{_MISSED[progress.stage]} within {seconds:g} s")
    if progress.errors:
        raise CloudInitFailed(server.name, progress.errors)


def read_console(host: Host, server: Server) -> bytes:
    """Nothing, if there is no log yet."""
    with suppress(NoConsole):
        return host.consoles.read(server.id, server.name)
    return b""


def judge_console(log: bytes, printed: bytes = b"") -> Progress:
    """By what the guest said since it was last booted."""
    text = log.removeprefix(printed)[-_JUDGED:].decode(errors="replace")
    text = text[max(text.rfind(_KERNEL), 0) :]
    if _FINISHED.search(text):
        return Progress(stage=Stage.NOTHING, errors=_named(_FAILED.findall(text)))
    if "cloud-init" in text.lower():
        return Progress(stage=Stage.CLOUD_INIT)
    return Progress(stage=Stage.NOTHING if _LOGIN.search(text) else Stage.BOOT)


def _named(modules: list[str]) -> tuple[str, ...]:
    return tuple(f"module {each} failed" for each in dict.fromkeys(modules))


def _ask(agent: GuestAgent) -> Progress | None:
    """None if there is no agent, or it does not say."""
    try:
        if (result := agent.find_file(f"{_STATE}/result.json")) is not None:
            return Progress(stage=Stage.NOTHING, errors=parse_result(result))
        runs = agent.has(f"{_STATE}/status.json") or (
            agent.has(_STATE) and not agent.has(f"{_STATE}/disabled")
        )
    except LibvirtFailed:
        return None
    return Progress(stage=Stage.CLOUD_INIT if runs else Stage.NOTHING)


def parse_result(content: bytes) -> tuple[str, ...]:
    """The errors that cloud-init's result.json has; of one that cannot be read, that."""
    try:
        errors = json.loads(content)["v1"]["errors"]
        return tuple(str(each)[:_LONGEST] for each in errors[:_MOST])
    except (ValueError, KeyError, TypeError, RecursionError):
        return (f"{_STATE}/result.json, which cannot be read",)
