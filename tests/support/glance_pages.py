"""What a Glance says, as pages of a web server that counts, and can be told to misbehave."""

import hashlib
import json
from typing import Any

from tests.support.web import Answer, Web

ID = "5a3c1f60-0d1e-4c3b-9c77-0f1f4f2a9b11"
FILE = f"/v2/images/{ID}/file"


def offer_versions(web: Web) -> None:
    link = {"rel": "self", "href": web.url("/v2/")}
    versions = {"versions": [{"id": "v2.9", "status": "CURRENT", "links": [link]}]}
    for path in ("", "/"):
        web.offer(path, json.dumps(versions).encode())


def offer_description(web: Web, content: bytes, **said: Any) -> None:
    usual = {
        "id": ID,
        "name": "guest",
        "status": "active",
        "disk_format": "raw",
        "container_format": "bare",
        "size": len(content),
        "virtual_size": len(content),
        "os_hash_algo": "sha512",
        "os_hash_value": hashlib.sha512(content).hexdigest(),
        "checksum": hashlib.md5(content, usedforsecurity=False).hexdigest(),
        "created_at": "2026-11-15T12:00:00Z",
    }
    web.offer(f"/v2/images/{ID}", json.dumps(usual | said).encode())


def offer_content(web: Web, content: bytes, *answers: Answer, usual: Answer | None = None) -> None:
    # Glance states no version of the bytes, which never change.
    web.offer(FILE, content, *answers, usual=usual or Answer(etag=None))
