"""A web server on the loopback that gives ranges of files, so many bytes a second
for all together.

python -m tests.bench.paced_source DIRECTORY BYTES     0: as fast as it can; prints its port
"""

import os
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_PIECE = 64 * 1024
COUNT = "/.sent"
"""How many bytes have been given, and how many requests that were."""


class Line:
    """Shared by all who are served."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._free_at = 0.0
        self.sent = self.requests = 0

    def wait(self, count: int) -> None:
        with self._lock:
            self.sent += count
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + (count / self._rate if self._rate else 0)
            pause = self._free_at - now
        time.sleep(max(0.0, pause - 0.01))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    directory: Path
    line: Line

    def log_message(self, *_: object) -> None:
        """It only counts."""

    def do_GET(self) -> None:
        if self.path == COUNT:
            body = f"{self.line.sent} {self.line.requests}".encode()
            self._head(200, len(body))
            self.wfile.write(body)
            return
        path = self.directory / self.path.lstrip("/")
        size = path.stat().st_size
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers["Range"] or "")
        first = int(asked[1]) if asked else 0
        last = min(size - 1, int((asked and asked[2]) or size - 1))
        extra = {"Content-Range": f"bytes {first}-{last}/{size}"} if asked else {}
        self._head(206 if asked else 200, last - first + 1, extra)
        self.line.requests += 1
        with path.open("rb") as file:
            for start in range(first, last + 1, _PIECE):
                count = min(_PIECE, last + 1 - start)
                self.line.wait(count)
                self.wfile.flush()
                os.sendfile(self.connection.fileno(), file.fileno(), start, count)

    def _head(self, code: int, length: int, extra: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(length), "ETag": '"1"', **(extra or {})}.items():
            self.send_header(name, value)
        self.end_headers()


def main() -> None:
    Handler.directory, Handler.line = Path(sys.argv[1]), Line(int(sys.argv[2]))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
