"""Certificates out of a key manager, Barbican or Vault: the door to castellan."""

import logging
import re
from collections.abc import Callable
from concurrent.futures import Future
from functools import cached_property
from threading import Thread
from typing import Any, TypeVar

from castellan import key_manager
from castellan.common.exception import CastellanException, ManagedObjectNotFoundError
from castellan.common.objects.x_509 import X509
from castellan.key_manager.key_manager import KeyManager
from cryptography.x509 import Certificate, load_der_x509_certificate
from keystoneauth1.exceptions import ClientException, ConnectFailure
from oslo_context.context import RequestContext

from millpond.errors import BadOption, FetchFailed
from millpond.model.cloud import SignaturePolicy

LOG = logging.getLogger(__name__)

T = TypeVar("T")

_ID = re.compile("[0-9a-zA-Z-]+")
"""It becomes a part of a URL, and was written by whoever may change an image."""


class Certificates:
    def __init__(self, policy: SignaturePolicy) -> None:
        self._options: Any = policy.key_manager
        self._seconds = policy.seconds

    def find(self, id: str, auth: Any) -> Certificate | None:
        """``auth`` says who asks, as for Glance."""
        what = f"certificate {id} of the key manager"
        try:
            return self._find(id, auth) if _ID.fullmatch(id) else None
        except (ManagedObjectNotFoundError, ValueError) as error:
            LOG.debug("%s: %s", what, error)  # something else has this id, or can have none
            return None
        except TimeoutError as error:
            raise FetchFailed(what, f"it has not answered for {self._seconds:g} s") from error
        except (CastellanException, ClientException) as error:
            raise FetchFailed(what, _reason(error)) from error

    def _find(self, id: str, auth: Any) -> Certificate | None:
        api = self._api
        found = _within(self._seconds, lambda: api.get(_Asking(auth), id))
        encoded = found.get_encoded() if isinstance(found, X509) else None
        return load_der_x509_certificate(encoded) if encoded else None

    @cached_property
    def _api(self) -> KeyManager:
        try:
            return key_manager.API(self._options)
        except (ImportError, ValueError) as error:
            backend = self._options.key_manager.backend
            reason = f"castellan cannot load {backend!r} ({str(error).splitlines()[0]})"
            advised = "backends: barbican, vault"
            raise BadOption("[key_manager] backend", reason, advised) from error


class _Asking(RequestContext):
    """castellan takes its way to prove who asks from a context."""

    def __init__(self, auth: Any) -> None:
        super().__init__()
        self._auth = auth

    def get_auth_plugin(self) -> Any:
        return self._auth


def _reason(error: Exception) -> str:
    """castellan wraps some of keystoneauth's errors, and lets others through."""
    if isinstance(error, ConnectFailure) or isinstance(error.__context__, ConnectFailure):
        return "it, or Keystone, cannot be reached"
    return str(error).splitlines()[0]


def _within(seconds: float, ask: Callable[[], T]) -> T:
    """castellan would wait for ever. Who waits no longer leaves the thread behind."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    Thread(target=run, daemon=True).start()
    return answer.result(seconds)
