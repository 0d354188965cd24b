"""Change what is recorded of a server: its definition first, and then its record."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from millpond.errors import Conflict, WrongState
from millpond.hosts.host import Host
from millpond.libvirt.domains import ON, is_saved, reset_variables
from millpond.model.flavors import with_maximum
from millpond.model.labels import Labels, change_labels
from millpond.model.server import Server
from millpond.servers import steps
from millpond.servers.devices import check_devices

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """None: it stays."""

    autostart: bool | None = None
    description: str | None = None
    devices: Mapping[str, Any] = field(default_factory=dict)
    """By the names of their fields."""
    labels: Labels = field(default_factory=dict)
    no_labels: tuple[str, ...] = ()
    """Keys of those that go."""
    max_vcpus: int | None = None
    max_memory: str = ""
    """As it was typed."""


def change(host: Host, server: Server, changes: Changes) -> Server:
    """A running server gets other devices at its next start. Ended between the two writes, it
    is defined as before at the next one."""
    with host.records.lock(server):
        current = steps.load_idle(host, server)
        changed = _apply(changes, current)
        if changed.devices != current.devices:
            check_devices(host, changed.devices, changed.hardware, changed.id)
        if changed.flavor != current.flavor:
            steps.check_size(host, changed.flavor, changed.hardware)
        other_firmware = changed.devices.secure_boot != current.devices.secure_boot
        if other_firmware:
            _refuse_unless_off(host, current)
        changed = steps.define(host, changed)
        if other_firmware:  # its variables are made from another template, with keys or without
            reset_variables(host.libvirtd, changed.id)
        steps.write_metadata(host, changed)  # of a running domain, too
        host.records.put(changed)
    LOG.info("changed server %s", server.name)
    return changed


def _refuse_unless_off(host: Host, server: Server) -> None:
    state = host.domains.state(server.id)
    if state in ON:
        raise WrongState(server.name, state, "stopped for --secure-boot")
    if is_saved(host.libvirtd, server.id):
        raise Conflict(
            f"the memory of server {server.name!r} was saved, and needs the firmware as it is",
            "start it and stop it first",
        )


def _apply(changes: Changes, server: Server) -> Server:
    kept = (changes.autostart is None, changes.description is None)
    return replace(
        server,
        autostart=server.autostart if kept[0] else bool(changes.autostart),
        description=server.description if kept[1] else changes.description or "",
        devices=replace(server.devices, **changes.devices),
        labels=change_labels(server.labels, changes.labels, changes.no_labels),
        flavor=with_maximum(server.flavor, changes.max_vcpus, changes.max_memory),
    )
