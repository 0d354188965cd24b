"""The one door to HTTP: a resource's bytes as they arrive, and what goes wrong in our own words.

What a URL says besides its host and path (a password, a signature) is in no message: errors of
the library quote it, so their texts are not passed on.
"""

import re
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

import requests
import urllib3

from millpond.errors import (
    BadOption,
    CannotResume,
    FetchFailed,
    FetchForbidden,
    FetchInterrupted,
    NotFound,
)
from millpond.model.sizes import format_size
from millpond.model.transfer import Patience

BLOCK = 256 * 1024
"""What must arrive within read_seconds: a server that sends a byte now and then is dead, too."""

_REDIRECTS = 5
_REFUSALS = {
    **dict.fromkeys((401, 403), FetchForbidden),
    **dict.fromkeys((408, 425, 429, 500, 502, 503, 504), FetchInterrupted),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Of answers that may be long: within limits, and explained in our words."""

    shown: str
    """What is read, as people may see it."""
    patience: Patience

    @property
    def timeout(self) -> tuple[float, float]:
        return self.patience.connect_seconds, self.patience.read_seconds

    def refusal(self, code: int) -> FetchFailed:
        kind = _REFUSALS.get(code, FetchFailed)
        return kind(self.shown, f"its server answers {code}{_phrase(code)}")

    def body(self, response: requests.Response, offset: int, size: int | None) -> Iterator[bytes]:
        """The content of an answer, which begins at the offset and ends at the size."""
        try:
            for block in self._blocks(response):
                offset += len(block)
                if size is not None and offset > size:
                    raise FetchFailed(self.shown, f"more than {format_size(size)} arrived")
                yield block
        except urllib3.exceptions.ProtocolError as error:
            raise self._broken_off(offset, size) from error
        if size is not None and offset != size:
            raise self._broken_off(offset, size)

    def _broken_off(self, offset: int, size: int | None) -> FetchInterrupted:
        whole = f" of {format_size(size)}" if size else ""
        return FetchInterrupted(self.shown, f"it broke off after {format_size(offset)}{whole}")

    def _blocks(self, response: requests.Response) -> Iterator[bytes]:
        ended = False
        while not ended:
            block = bytearray()
            until = time.monotonic() + self.patience.read_seconds
            while len(block) < BLOCK and not ended:
                piece = response.raw.read1(BLOCK - len(block), decode_content=False)
                block += piece
                ended = not piece
                if time.monotonic() > until and not ended:
                    raise self._too_slow()
            if block:
                yield bytes(block)

    def _too_slow(self) -> FetchInterrupted:
        seconds = f"{self.patience.read_seconds:g} s"
        reason = f"its server sent less than {format_size(BLOCK)} in {seconds}"
        return FetchInterrupted(self.shown, reason)

    @contextmanager
    def explaining(self) -> Iterator[None]:
        try:
            yield
        except (
            requests.exceptions.ConnectTimeout,
            urllib3.exceptions.ConnectTimeoutError,
        ) as error:
            reason = f"no connection within {self.patience.connect_seconds:g} s"
            raise FetchInterrupted(self.shown, reason) from error
        except (requests.exceptions.ReadTimeout, urllib3.exceptions.ReadTimeoutError) as error:
            reason = f"its server sent nothing for {self.patience.read_seconds:g} s"
            raise FetchInterrupted(self.shown, reason) from error
        except (requests.exceptions.SSLError, urllib3.exceptions.SSLError) as error:
            raise FetchFailed(self.shown, _tls_reason(error)) from error
        except (requests.exceptions.InvalidURL, UnicodeError) as error:
            raise FetchFailed(self.shown, "this is no web address") from error
        except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError) as error:
            raise FetchInterrupted(self.shown, _reason(error)) from error


def begins_at(response: requests.Response, offset: int) -> bool:
    """Whether it is the part from there on."""
    said = response.headers.get("Content-Range", "")
    return response.status_code == 206 and re.match(rf"bytes {offset}-", said) is not None


class Resource:
    """What is at a URL: one version of it, as its first answer names it."""

    def __init__(self, url: str, patience: Patience) -> None:
        self._parts = _check_url(url)
        self._reading = Reading(shown=_redact(self._parts), patience=patience)
        self._version: str | None = None
        self.size: int | None = None
        """Known from the first answer on, if the server says it."""
        self.has_end = True
        """Whether its server says where it ends: without that, a part looks like the whole."""

    @property
    def shown(self) -> str:
        """For people: without a password, or anything else that may be secret."""
        return self._reading.shown

    @property
    def name(self) -> str:
        """The last word of the path."""
        return unquote(self._parts.path).rpartition("/")[2]

    def chunks(self, offset: int) -> Iterator[bytes]:
        """The bytes from there on. Goes on with the version that was begun, or not at all."""
        if offset and not self._version:
            raise CannotResume(
                self._reading.shown, "its server does not say which version this is"
            )
        with (
            self._reading.explaining(),
            requests.Session() as session,
            closing(self._answer(session, offset)) as response,
        ):
            if not offset:
                self._note(response)
            yield from self._reading.body(response, offset, self.size)

    def part(self, offset: int, length: int) -> bytes:
        """Some bytes of whatever version is there: for who can tell by the bytes that they are
        right. A server that gives no parts is a reason for CannotResume."""
        asked = {"Range": f"bytes={offset}-{offset + length - 1}"}
        with (
            self._reading.explaining(),
            requests.Session() as session,
            closing(self._follow(session, asked)) as response,
        ):
            if not begins_at(response, offset):
                self._refuse(response, offset or 1)  # the first byte is a part, too
                raise CannotResume(self._reading.shown, "its server gives no part of it")
            return b"".join(self._reading.body(response, offset, offset + length))

    def _answer(self, session: requests.Session, offset: int) -> requests.Response:
        asked = {}
        if offset and self._version:
            asked = {"Range": f"bytes={offset}-", "If-Range": self._version}
        response = self._follow(session, asked)
        self._refuse(response, offset)
        return response

    def _follow(self, session: requests.Session, asked: Mapping[str, str]) -> requests.Response:
        """The first answer that is no redirect."""
        headers = {"Accept-Encoding": "identity", **asked}  # the stored bytes, not packed ones
        at = self._parts
        for _ in range(_REDIRECTS + 1):
            response = session.get(
                _without_user(at),
                headers=headers,
                auth=_auth(self._parts) if _origin(at) == _origin(self._parts) else None,
                timeout=self._reading.timeout,
                allow_redirects=False,
                stream=True,
            )
            if not response.is_redirect:
                return response
            response.close()
            at = self._next(at, response.headers["Location"])
        raise FetchFailed(self._reading.shown, f"it leads on more than {_REDIRECTS} times")

    def _next(self, at: SplitResult, location: str) -> SplitResult:
        target = urlsplit(urljoin(at.geturl(), location))
        if target.scheme not in ("http", "https"):
            raise FetchFailed(self._reading.shown, "it leads to something that is no web address")
        if at.scheme == "https" and target.scheme == "http":
            raise FetchFailed(
                self._reading.shown, f"it leads to {_redact(target)}, which is not encrypted"
            )
        return target

    def _refuse(self, response: requests.Response, offset: int) -> None:
        """Anything but the bytes that were asked for."""
        code = response.status_code
        if begins_at(response, offset) if offset else code == 200:
            return
        response.close()
        if offset and code in (200, 206, 412, 416):
            raise CannotResume(self._reading.shown, "its server cannot go on where it stopped")
        if code in (404, 410):
            what = f"there is nothing at {self._reading.shown}"
            raise NotFound(what, "check the address with who published it")
        raise self._reading.refusal(code)

    def _note(self, response: requests.Response) -> None:
        tag = response.headers.get("ETag", "")
        # A weak one stands for the same meaning, not for the same bytes.
        strong = None if tag.startswith("W/") else tag
        self._version = strong or response.headers.get("Last-Modified")
        length = response.headers.get("Content-Length", "")
        self.size = int(length) if length.isdecimal() else None
        is_chunked = "chunked" in response.headers.get("Transfer-Encoding", "").lower()
        self.has_end = is_chunked or self.size is not None


def _check_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise BadOption("URL", "this is no web address", "write https://host/path")
    return parts


def _redact(parts: SplitResult) -> str:
    query = "?…" if parts.query else ""
    return f"{parts.scheme}://{_host(parts)}{parts.path}{query}"


def _without_user(parts: SplitResult) -> str:
    return parts._replace(netloc=_host(parts), fragment="").geturl()


def _host(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _origin(parts: SplitResult) -> tuple[str, str]:
    return parts.scheme, _host(parts)


def _auth(parts: SplitResult) -> tuple[str, str] | None:
    if parts.username is None:
        return None
    return unquote(parts.username), unquote(parts.password or "")


def _phrase(code: int) -> str:
    """What a status means, by the standard: what the server adds is a stranger's text."""
    try:
        return f" ({HTTPStatus(code).phrase})"
    except ValueError:
        return ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error:
        yield error
        error = error.__cause__ or error.__context__


def _tls_reason(error: BaseException) -> str:
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {cause.verify_message}"
    return "no encrypted connection comes about"


def _reason(error: BaseException) -> str:
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
    return "the connection broke off"
