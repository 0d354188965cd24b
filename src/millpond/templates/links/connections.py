"""What Cinder says of how a volume is reached, as a link: QEMU follows it, or the host does."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from millpond.errors import NotLinkable
from millpond.model.layer import CephAccess, FileSource, IscsiSource, RbdSource
from millpond.model.template import Link

Connect = Callable[[Mapping[str, Any]], FileSource]
"""Makes a device or a file of a volume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachOptions:
    """By which this host reaches volumes."""

    ceph: CephAccess | None
    """Its own way into its cluster, and whose key libvirt has: Cinder names its own user."""
    initiator: str
    connect: Connect


def connect_link(link: Link, connection: Mapping[str, Any], options: AttachOptions) -> Link:
    """The link with its source. What a driver of Cinder's says is its own business."""
    try:
        return _connect(link, connection, options)
    except (KeyError, TypeError, ValueError) as error:
        raise NotLinkable(f"what Cinder says of its volume is not understood ({error})") from error


def _connect(link: Link, connection: Mapping[str, Any], options: AttachOptions) -> Link:
    if connection.get("encrypted"):
        raise NotLinkable("its volume is encrypted")
    if is_for_the_host(connection):
        return replace(link, file=_file(connection, options.connect))
    match connection.get("driver_volume_type"):
        case "rbd":
            return replace(link, rbd=_rbd(connection, options.ceph))
        case "iscsi":
            return replace(link, iscsi=_iscsi(connection, options.initiator))
        case kind:
            raise NotLinkable(f"volumes of the kind {kind!r} are not linked")


def is_for_the_host(connection: Mapping[str, Any]) -> bool:
    """Whether QEMU does not reach it by itself. A password would be shown in the domain."""
    kind = connection.get("driver_volume_type")
    return kind in ("nfs", "local") or (kind == "iscsi" and bool(connection.get("auth_method")))


def _file(connection: Mapping[str, Any], connect: Connect) -> FileSource:
    """A volume in another format is not what its bytes are: those of its image lie within."""
    if (format := connection.get("format") or "raw") != "raw":
        raise NotLinkable(f"its volume is a {format} file")
    return connect(connection)


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
    host, _, port = str(connection["target_portal"]).rpartition(":")
    return IscsiSource(
        host=host.strip("[]"),
        port=int(port),
        target=str(connection["target_iqn"]),
        lun=int(connection["target_lun"]),
        initiator=initiator,
    )
