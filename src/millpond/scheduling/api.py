"""The way to Placement: its version, its refusals in our words, and one more try on a conflict."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Protocol, TypeVar

import msgspec
import tenacity

from millpond.errors import (
    Conflict,
    NoRoom,
    NotInPlacement,
    PlacementBadRequest,
    PlacementFailed,
    PlacementProblem,
    PlacementRefused,
    StillAllocated,
)
from millpond.model.cloud import CloudAccess

_log = logging.getLogger(__name__)

T = TypeVar("T")
Version = tuple[int, int]

OLDEST: Version = (1, 36)
"""Train's. Groups with names came with 1.33, mappings of candidates to them with 1.34."""
NEWEST: Version = (1, 39)
"""The last that Millpond was written for."""
WITH_CONSUMER_TYPES: Version = (1, 38)

WRITING = "writing"
"""The lock that a transport holds around every request that changes something."""

_CONFLICT = "placement.concurrent_update"
_IN_USE = (
    "placement.inventory.inuse",
    "placement.resource_provider.inuse",
    "placement.resource_provider.cannot_delete_parent",
)
_BEFORE_REASON = "Unable to allocate inventory: "
_FAILURES = {400: PlacementBadRequest, 404: NotInPlacement}
_TRIES = 12
"""Sixteen processes at one host were seen to need five at the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    body: bytes


class Transport(Protocol):
    """How a request gets there: a call in this process, or HTTP with a token."""

    def ask(self, method: str, path: str, version: str, body: bytes | None) -> Answer:
        """Placement's answer, whatever it is; it raises where there is none."""


class LazyTransport:
    """To a service or to the embedded one, which is loaded when something is first asked."""

    def __init__(self, access: CloudAccess | None, directory: Path) -> None:
        self._access = access
        self._directory = directory

    def ask(self, method: str, path: str, version: str, body: bytes | None) -> Answer:
        return self._transport.ask(method, path, version, body)

    @cached_property
    def _transport(self) -> Transport:
        access, directory = self._access, self._directory
        transport: Transport = (
            resolve_name("millpond.scheduling.external:ExternalPlacement")(access, directory)
            if access
            else resolve_name("millpond.scheduling.embedded:EmbeddedPlacement")(directory)
        )
        return transport


class ConcurrentUpdate(Exception):
    """Somebody changed the same at the same moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Error:
    detail: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Errors:
    errors: list[_Error]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    min_version: str
    max_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offers:
    versions: list[_Offer]


class Api:
    """One Placement, in the version that both sides know."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._agreed: Version | None = None
        self._lock = threading.Lock()

    @property
    def version(self) -> Version:
        with self._lock:
            if self._agreed is None:
                self._agreed = self._agree()
                _log.debug("Placement is asked in version %s", _format(self._agreed))
            return self._agreed

    def get(self, path: str, kind: type[T]) -> T:
        return self._decode(f"GET {path}", self.ask("GET", path).body, kind)

    def ask(self, method: str, path: str, body: object = None) -> Answer:
        """One try. Whatever is no success raises."""
        content = None if body is None else msgspec.json.encode(body)
        answer = self._transport.ask(method, path, _format(self.version), content)
        if answer.status >= 300:
            raise self._refusal(f"{method} {path.partition('?')[0]}", answer)
        return answer

    def retry(self, what: str, act: Callable[[], T]) -> T:
        """``act`` reads what it depends on and writes; again as long as others are faster."""
        tries = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(ConcurrentUpdate),
            stop=tenacity.stop_after_attempt(_TRIES),
            wait=tenacity.wait_random_exponential(multiplier=0.02, max=1),
        )
        try:
            return tries(act)
        except tenacity.RetryError as error:
            busy = f"others keep changing {what} in Placement at the same moment"
            raise Conflict(busy, "try again") from error

    def _agree(self) -> Version:
        answer = self._transport.ask("GET", "/", _format(OLDEST), None)
        if answer.status >= 300:
            raise self._refusal("GET /", answer)
        offers = self._decode("GET /", answer.body, _Offers).versions
        newest = max((_parse(each.max_version) for each in offers), default=(0, 0))
        oldest = min((_parse(each.min_version) for each in offers), default=(0, 0))
        if newest < OLDEST:
            raise PlacementProblem(
                f"Placement knows its API up to {_format(newest)} only: Millpond needs "
                f"{_format(OLDEST)} or newer",
                f"upgrade it: {_format(OLDEST)} came with OpenStack Train",
            )
        if oldest > NEWEST:
            needed = f"it knows {_format(oldest)} and newer, and Millpond {_format(NEWEST)}"
            raise PlacementFailed("GET /", f"{needed}: Millpond is too old for it")
        return min(newest, NEWEST)

    def _refusal(self, doing: str, answer: Answer) -> Exception:
        error = _first_error(answer)
        said = f"it answers {answer.status} {_one_line(error.detail)}".strip()
        match answer.status:
            case 401 | 403:
                return PlacementRefused(f"{said} to {doing}")
            case 409 if error.code == _CONFLICT:
                return ConcurrentUpdate(said)
            case 409 if error.code in _IN_USE:
                return StillAllocated(doing, said)
            case 409 if "/allocations" in doing:
                return NoRoom(_one_line(error.detail).removeprefix(_BEFORE_REASON))
        return _FAILURES.get(answer.status, PlacementFailed)(doing, said)

    @staticmethod
    def _decode(doing: str, body: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.MsgspecError as error:
            raise PlacementFailed(
                doing, f"its answer is not what it should be ({error})"
            ) from error


def _first_error(answer: Answer) -> _Error:
    try:
        found = msgspec.json.decode(answer.body, type=_Errors).errors
    except msgspec.MsgspecError:  # a proxy's page
        return _Error()
    return found[0] if found else _Error()


def _one_line(detail: str) -> str:
    """Placement's own sentence, without the one before it that says the status in words."""
    return " ".join(detail.rpartition("\n\n")[2].split()).rstrip(".")


def _parse(version: str) -> Version:
    major, _, minor = version.partition(".")
    return int(major), int(minor)


def _format(version: Version) -> str:
    return f"{version[0]}.{version[1]}"
