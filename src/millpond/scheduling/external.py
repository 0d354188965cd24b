"""Placement as a service: [placement] says where, as in nova.conf, and who asks."""

from contextlib import nullcontext
from functools import cached_property
from pathlib import Path

from keystoneauth1.adapter import Adapter

from millpond.errors import (
    FetchFailed,
    FetchForbidden,
    FetchInterrupted,
    MillpondError,
    PlacementFailed,
    PlacementRefused,
    PlacementUnreachable,
)
from millpond.model.cloud import CloudAccess
from millpond.scheduling.api import WRITING, Answer
from millpond.system import cloud
from millpond.system.http import Reading
from millpond.system.locks import Locks

_NO_KEYSTONE = "none"
_NAMELESS = {"X-Auth-Token": "admin"}
"""What a Placement with auth_strategy = noauth2 wants in the place of a token."""


class ExternalPlacement:
    """A transport. One of our processes writes at a time here, too: on MariaDB, Placement grants
    more than there is to many who claim at once (docs/facts.md), and only we claim there."""

    def __init__(self, access: CloudAccess, directory: Path) -> None:
        self._access = access
        self._locks = Locks(directory / "locks")
        self._reading = Reading(shown="Placement", patience=access.patience)

    def ask(self, method: str, path: str, version: str, body: bytes | None) -> Answer:
        headers = {"OpenStack-API-Version": f"placement {version}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        knows_us = self._access.auth_type != _NO_KEYSTONE
        if not knows_us:
            headers |= _NAMELESS
        alone = nullcontext() if method == "GET" else self._locks.hold(WRITING)
        try:
            with alone, cloud.explaining(self._reading, "Placement"):
                answer = self._api.request(
                    path,
                    method,
                    headers=headers,
                    data=body,
                    raise_exc=False,
                    authenticated=knows_us,
                )
        except FetchFailed as error:
            raise _in_our_words(error) from error
        return Answer(status=answer.status_code, body=answer.content)

    @cached_property
    def _api(self) -> Adapter:
        return cloud.plain_client(self._access, "placement")


def _in_our_words(error: FetchFailed) -> MillpondError:
    match error:
        case FetchForbidden():
            return PlacementRefused(error.reason)
        case FetchInterrupted():
            return PlacementUnreachable(error.reason)
    return PlacementFailed("its address", error.reason)
