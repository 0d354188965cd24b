"""A real web server on the loopback that misbehaves as it is told, one request after the other."""

import re
import ssl
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.loopback import ADDRESS

SLOWLY = 0.05
"""Seconds between two bytes of a server that sends slowly."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """To one request; the plain one is all of the page's content, or the range asked for."""

    status: int = 200
    etag: str | None = '"one"'
    modified: str | None = None
    ranges: bool = True
    range_status: int | None = None
    """Of the answer to any request for a range, and nothing else."""
    content: bytes | None = None
    """Instead of the page's."""
    truncate: int | None = None
    """The connection ends after so many bytes."""
    hang: int | None = None
    """Nothing more comes after so many bytes, and the connection stays."""
    trickle: bool = False
    """A byte now and then."""
    chunked: bool = False
    """Without a length."""
    endless: bool = False
    """Neither a length nor chunks: the end of the connection is the end."""
    redirect: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    """Besides."""
    range_lie: bool = False
    """206, but from the first byte on."""


@dataclass(kw_only=True)
class Page:
    content: bytes
    answers: deque[Answer] = field(default_factory=deque)
    """What comes first; each once."""
    usual: Answer = Answer()
    """What comes after them."""


@dataclass(frozen=True)
class Seen:
    path: str
    range: str | None
    if_range: str | None
    authorization: str | None
    method: str = "GET"


class Web:
    def __init__(self, scheme: str = "http") -> None:
        self.pages: dict[str, Page] = {}
        self.seen: list[Seen] = []
        self.sent: dict[str, int] = defaultdict(int)
        """Bytes of content, by path."""
        self.posted: list[bytes] = []
        self.closing = threading.Event()
        self._scheme = scheme
        self.server = ThreadingHTTPServer(
            (ADDRESS, 0), type("Handler", (_Handler,), {"web": self})
        )
        self.server.daemon_threads = True

    @property
    def address(self) -> str:
        return f"{ADDRESS}:{self.server.server_address[1]}"

    def url(self, path: str) -> str:
        return f"{self._scheme}://{self.address}{path}"

    def offer(
        self, path: str, content: bytes, *answers: Answer, usual: Answer | None = None
    ) -> str:
        self.pages[path] = Page(content=content, answers=deque(answers), usual=usual or Answer())
        return self.url(path)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    web: Web

    def log_message(self, *_: object) -> None:
        """The tests ask what was seen."""

    def end_headers(self) -> None:
        self.send_header("Connection", "close")
        super().end_headers()

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.web.posted.append(self.rfile.read(length))
        self.do_GET()

    def do_PUT(self) -> None:
        self.do_POST()

    def do_DELETE(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.close_connection = True
        path = self.path.partition("?")[0]
        asked = self.headers
        seen = (asked["Range"], asked["If-Range"], asked["Authorization"])
        self.web.seen.append(Seen(self.path, *seen, self.command))
        page = self.web.pages.get(path)
        if page is None:
            self.send_error(404)
            return
        answer = page.answers.popleft() if page.answers else page.usual
        content = page.content if answer.content is None else answer.content
        with suppress(ConnectionError, ssl.SSLError):  # who had enough hangs up
            self._answer(answer, content)

    def _answer(self, answer: Answer, content: bytes) -> None:
        status = (self.headers["Range"] and answer.range_status) or answer.status
        if answer.redirect or status != 200:
            self.send_response(302 if answer.redirect else status)
            if answer.redirect:
                self.send_header("Location", answer.redirect)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self._send(answer, self._head(answer, content))

    def _head(self, answer: Answer, content: bytes) -> bytes:
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers["Range"] or "")
        version = answer.etag or answer.modified
        if self.headers["If-Range"] not in (None, version) or not answer.ranges:
            asked = None
        start, last = int(asked[1]) if asked else 0, len(content) - 1
        last = min(last, int((asked and asked[2]) or last))
        self.send_response(206 if asked else 200)
        if asked and not answer.range_lie:
            self.send_header("Content-Range", f"bytes {start}-{last}/{len(content)}")
        versions = (("ETag", answer.etag), ("Last-Modified", answer.modified))
        for name, value in (*versions, *answer.headers):
            if value:
                self.send_header(name, value)
        body = content if answer.range_lie else content[start : last + 1]
        if answer.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif not answer.endless:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        return body

    def _send(self, answer: Answer, body: bytes) -> None:
        end = min(each for each in (answer.truncate, answer.hang, len(body)) if each is not None)
        step = 1 if answer.trickle else 64 * 1024
        for start in range(0, end, step):
            piece = body[start : min(start + step, end)]
            self._piece(answer, piece)
            self.web.sent[self.path] += len(piece)
            if answer.trickle:
                time.sleep(SLOWLY)
                if self.web.closing.is_set():
                    return
        if answer.hang is not None:
            self.web.closing.wait(60)
        elif answer.chunked and end == len(body):
            self.wfile.write(b"0\r\n\r\n")

    def _piece(self, answer: Answer, piece: bytes) -> None:
        framed = b"%x\r\n%s\r\n" % (len(piece), piece) if answer.chunked else piece
        self.wfile.write(framed)
        self.wfile.flush()


@contextmanager
def serving(certificate: tuple[Path, Path] | None = None) -> Iterator[Web]:
    """With a certificate and its key, over TLS."""
    web = Web("https" if certificate else "http")
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        web.server.socket = context.wrap_socket(web.server.socket, server_side=True)
    thread = threading.Thread(target=web.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield web
    finally:
        web.closing.set()
        web.server.shutdown()
        web.server.server_close()
        thread.join()
