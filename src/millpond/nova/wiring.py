"""The host as nova.conf configures it, with its records in Nova's database."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import nova.conf

from millpond import config
from millpond.config import ImageSourceOption
from millpond.errors import BadConfiguration, BadOption
from millpond.hosts.host import Host
from millpond.hosts.shared import Shared
from millpond.model.callbacks import noop
from millpond.nova.records import NovaRecords
from millpond.records.journal import Watch

_VIRT_TYPES = ("kvm", "qemu")
_NO_INJECTION = -2


def host(watch: Watch = noop) -> Host:
    """Raises BadConfiguration for what could not work with any server."""
    conf = nova.conf.CONF
    if problems := tuple(_problems(conf)):
        raise BadConfiguration(problems)
    settings = replace(
        config.settings_from(conf), image_source=ImageSourceOption.GLANCE, own_process=False
    )
    (name,) = settings.hosts
    return Host(name, Shared(settings, NovaRecords(conf.host)), watch)


def _problems(conf: Any) -> Iterator[BadOption]:
    if conf.libvirt.virt_type not in _VIRT_TYPES:
        reason = f"Millpond runs no {conf.libvirt.virt_type!r} guests under Nova"
        yield BadOption("[libvirt] virt_type", reason, f"values: {', '.join(_VIRT_TYPES)}")
    if conf.libvirt.inject_partition != _NO_INJECTION:
        reason = "nothing is injected into disks in storage pools"
        advice = f"set it to {_NO_INJECTION}, and use config drives"
        yield BadOption("[libvirt] inject_partition", reason, advice)
    if conf.ephemeral_storage_encryption.enabled:
        reason = "disks in storage pools are not encrypted"
        yield BadOption("[ephemeral_storage_encryption] enabled", reason, "set it to False")
