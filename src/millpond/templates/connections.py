"""What Cinder says of how a volume is reached, as a link that QEMU follows."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from millpond.model.layer import CephAccess, IscsiSource, RbdSource
from millpond.model.template import Link


class NotLinkable(Exception):
    """The image must be downloaded; the text says why. It never leaves the handler."""


def connected(
    link: Link, connection: Mapping[str, Any], ceph: CephAccess | None, initiator: str
) -> Link:
    """The link with its source. ``ceph`` is this host's own way into its cluster, and whose key
    libvirt has: Cinder names its own user."""
    if connection.get("encrypted"):
        raise NotLinkable("its volume is encrypted")
    match connection.get("driver_volume_type"):
        case "rbd":
            return replace(link, rbd=_rbd(connection, ceph))
        case "iscsi":
            return replace(link, iscsi=_iscsi(connection, initiator))
        case kind:
            raise NotLinkable(f"QEMU does not reach volumes of the kind {kind!r} by itself")


def _rbd(connection: Mapping[str, Any], ceph: CephAccess | None) -> RbdSource:
    pool, _, image = str(connection["name"]).partition("/")
    access = CephAccess(
        pool=pool,
        monitors=tuple(
            (str(host).strip("[]"), int(port))
            for host, port in zip(connection["hosts"], connection["ports"], strict=True)
        ),
        user=ceph.user if ceph else str(connection.get("auth_username") or ""),
        secret=ceph.secret if ceph else str(connection.get("secret_uuid") or ""),
        conf=ceph.conf if ceph else None,
    )
    return RbdSource(access=access, image=image)


def _iscsi(connection: Mapping[str, Any], initiator: str) -> IscsiSource:
    if connection.get("auth_method"):
        raise NotLinkable("its iSCSI target asks for a password")
    host, _, port = str(connection["target_portal"]).rpartition(":")
    return IscsiSource(
        host=host.strip("[]"),
        port=int(port),
        target=str(connection["target_iqn"]),
        lun=int(connection["target_lun"]),
        initiator=initiator,
    )
