"""Placement as a service: [placement] says where, as in nova.conf, and who asks."""

from functools import cached_property

from openstack.proxy import Proxy

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
from millpond.scheduling.api import Answer
from millpond.system import cloud
from millpond.system.http import Reading

_NO_KEYSTONE = "none"
_NAMELESS = {"X-Auth-Token": "admin"}
"""What a Placement with auth_strategy = noauth2 wants in the place of a token."""


class ExternalPlacement:
    """A door."""

    def __init__(self, access: CloudAccess) -> None:
        self._access = access
        self._reading = Reading(shown="Placement", patience=access.patience)

    def ask(self, method: str, path: str, version: str, body: bytes | None) -> Answer:
        headers = {"OpenStack-API-Version": f"placement {version}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._access.auth_type == _NO_KEYSTONE:
            headers |= _NAMELESS
        try:
            with cloud.explained(self._reading, "Placement"):
                answer = self._api.request(
                    path, method, headers=headers, data=body, raise_exc=False
                )
        except FetchFailed as error:
            raise _in_our_words(error) from error
        return Answer(status=answer.status_code, body=answer.content)

    @cached_property
    def _api(self) -> Proxy:
        api = cloud.connect(self._access, "placement").placement
        assert isinstance(api, Proxy)
        return api


def _in_our_words(error: FetchFailed) -> MillpondError:
    match error:
        case FetchForbidden():
            return PlacementRefused(error.reason)
        case FetchInterrupted():
            return PlacementUnreachable(error.reason)
    return PlacementFailed("its address", error.reason)
