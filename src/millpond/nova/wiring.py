"""The host as nova.conf configures it, with its records in Nova's database."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import nova.conf
from nova import service_auth

from millpond import config
from millpond.config import ImageSourceOption
from millpond.config.cloud_options import CINDER, GLANCE
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
    _let_nova_define_options(conf)
    settings = replace(
        config.settings_from(conf), image_source=ImageSourceOption.GLANCE, own_process=False
    )
    (name,) = settings.hosts
    return Host(name, Shared(settings, NovaRecords(conf.host)), watch)


def _let_nova_define_options(conf: Any) -> None:
    """Those of keystoneauth, which takes no others of the same names. Nova has them defined only
    when it first asks a service as itself. What is missing or wrong, we report ourselves."""
    for group in (CINDER, GLANCE):
        if "auth_type" in conf[group] and conf[group].auth_type:
            with suppress(Exception):
                service_auth.get_service_auth_plugin(group)


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
