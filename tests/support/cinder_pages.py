"""What a Cinder says that has one volume, for hosts on which the real one cannot run: how the
volume is reached is told by the test, as Cinder's drivers tell it."""

import json
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.glance_pages import ID
from tests.support.loopback import ADDRESS

VOLUME = "0b9c6d4e-6f3a-4a57-8f0e-3d1c2b4a5968"
LOCATION = f"cinder://ponds/{VOLUME}"
PROJECT = "5e1b7c0d9f2a4c6e8b3d1f5a7c9e0b2d"
"""Of Glance's store."""

_VERSION = {"id": "v3.0", "status": "CURRENT", "version": "3.71", "min_version": "3.0"}


class CinderPages:
    def __init__(self, connection: Mapping[str, Any]) -> None:
        self.connection = dict(connection)
        self.attachments: dict[str, Mapping[str, str]] = {}
        """What who attached said of itself."""
        self.project = PROJECT
        self.is_gone = False
        """Somebody deleted the volume."""
        self.server = ThreadingHTTPServer(
            (ADDRESS, 0), type("Handler", (_Handler,), {"pages": self})
        )
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.server.server_address[1]}/v3"

    def answer(self, method: str, path: list[str], asked: Any) -> Any:
        """None: there is no such thing."""
        match method, path:
            case "GET", []:
                links = [{"rel": "self", "href": f"{self.url}/"}]
                return {"versions": [{**_VERSION, "links": links}]}
            case "GET", ["volumes", id] if id == VOLUME and not self.is_gone:
                return {"volume": self._volume()}
            case "POST", ["attachments"]:
                return self._reserve()
            case "PUT", ["attachments", id] if id in self.attachments:
                self.attachments[id] = asked["attachment"]["connector"]
                return self._attachment(id)
            case "POST", ["attachments", id, "action"] if id in self.attachments:
                return {}
            case "GET", ["attachments", id] if id in self.attachments:
                return self._attachment(id)
            case "DELETE", ["attachments", id] if id in self.attachments:
                del self.attachments[id]
                return {"attachments": []}
        return None

    def _reserve(self) -> Any:
        id = str(uuid.uuid4())
        self.attachments[id] = {}
        return self._attachment(id)

    def _attachment(self, id: str) -> Any:
        known = self.connection if self.attachments[id] else {}
        return {"attachment": {"id": id, "connection_info": known}}

    def _volume(self) -> Any:
        held = [
            {"attachment_id": id, "host_name": each["host"], "device": each["mountpoint"]}
            for id, each in self.attachments.items()
            if each
        ]
        return {
            "id": VOLUME,
            "status": "in-use" if held else "available",
            "os-vol-tenant-attr:tenant_id": self.project,
            "multiattach": True,
            "encrypted": False,
            "metadata": {"readonly": "True", "glance_image_id": ID},
            "attachments": held,
        }


class _Handler(BaseHTTPRequestHandler):
    pages: CinderPages

    def log_message(self, *_: object) -> None:
        """The tests ask what is attached."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def _answer(self) -> None:
        length = int(self.headers["Content-Length"] or 0)
        asked = json.loads(self.rfile.read(length) or b"null")
        path = [each for each in self.path.partition("?")[0].split("/") if each not in ("", "v3")]
        answer = self.pages.answer(self.command, path, asked)
        content = json.dumps(answer).encode()
        self.send_response(404 if answer is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def saying(connection: Mapping[str, Any]) -> Iterator[CinderPages]:
    pages = CinderPages(connection)
    thread = threading.Thread(target=pages.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield pages
    finally:
        pages.server.shutdown()
        pages.server.server_close()
        thread.join()
