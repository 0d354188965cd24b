"""Cinder: the volumes that images lie in, and our attachments to them."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from openstack.block_storage.v3._proxy import Proxy
from openstack.connection import Connection
from openstack.exceptions import NotFoundException

from millpond.model.cloud import CloudAccess
from millpond.system import cloud
from millpond.system.http import Reading

_READ_ONLY = "ro"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """An attachment, as the volume shows it."""

    id: str
    host: str
    """Empty for those who may not know it."""
    mountpoint: str
    """What the host that attached it said; of ours it names the owner and the template."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CinderVolume:
    id: str
    status: str
    project: str
    """That owns it; empty if Cinder does not say."""
    shared: bool
    """It can be attached more than once at a time."""
    read_only: bool
    encrypted: bool
    image: str
    """Whose bytes Glance says that it has."""
    held: tuple[Attachment, ...]


class Cinder:
    def __init__(self, access: CloudAccess) -> None:
        self._access = access

    def volume(self, id: str) -> CinderVolume | None:
        with self._explaining(f"volume {id} of Cinder"):
            try:
                found = self._api.get_volume(id)
            except NotFoundException:
                return None
        return CinderVolume(
            id=id,
            status=str(found.status),
            project=str(found.project_id or ""),
            shared=bool(found.is_multiattach),
            read_only=str((found.metadata or {}).get("readonly", "")).lower() == "true",
            encrypted=bool(found.is_encrypted),
            image=str((found.metadata or {}).get("glance_image_id", "")),
            held=tuple(_parse_attachment(each) for each in found.attachments or ()),
        )

    def own_project(self) -> str:
        """That we ask for; empty where nobody is asked who we are."""
        with self._explaining("our project"):
            return str(self._connection.current_project_id or "")

    def reserve(self, id: str) -> str:
        """An attachment without a connector yet. For no server: its owner may then detach it, and
        nobody asks Nova."""
        with self._explaining(f"an attachment of volume {id} of Cinder"):
            made = self._api.create_attachment(id, mode=_READ_ONLY)
        return str(made.id)

    def attach(self, attachment: str, connector: Mapping[str, Any]) -> Mapping[str, Any]:
        """How the volume is reached from there. It may hold a password: not for logs."""
        with self._explaining(f"attachment {attachment} of Cinder"):
            told = {**connector, "mode": _READ_ONLY}
            self._api.update_attachment(attachment, connector=told)
            self._api.complete_attachment(attachment)
        return self.connection(attachment)

    def connection(self, attachment: str) -> Mapping[str, Any]:
        """As it is now; it is kept nowhere here. Empty if the attachment is gone."""
        with self._explaining(f"attachment {attachment} of Cinder"):
            try:
                found = self._api.get_attachment(attachment)
            except NotFoundException:
                return {}
        return dict(found.connection_info or {})

    def detach(self, attachment: str) -> None:
        """One that is gone already is no error."""
        with self._explaining(f"attachment {attachment} of Cinder"):
            self._api.delete_attachment(attachment, ignore_missing=True)

    @cached_property
    def _connection(self) -> Connection:
        return cloud.connect(self._access, "block_storage")

    @cached_property
    def _api(self) -> Proxy:
        api = self._connection.block_storage
        assert isinstance(api, Proxy)  # version 2 is gone since 2021
        return api

    def _explaining(self, what: str) -> AbstractContextManager[None]:
        return cloud.explaining(Reading(shown=what, patience=self._access.patience), "Cinder")


def _parse_attachment(answer: Mapping[str, Any]) -> Attachment:
    return Attachment(
        id=str(answer["attachment_id"]),
        host=str(answer.get("host_name") or ""),
        mountpoint=str(answer.get("device") or ""),
    )
