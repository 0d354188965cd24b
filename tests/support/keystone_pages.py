"""What a Keystone says, as pages of a web server."""

import json

from tests.support.web import Answer, Web

AUTH = {
    "username": "millpond",
    "password": "secret",
    "project_name": "service",
    "user_domain_name": "Default",
    "project_domain_name": "Default",
}
"""Whom it knows."""
PROJECT = "8d5c0f7e4b3a4f6d9a1e2c7b6f0d3e5a"
"""Of all of them."""
TOKENS = "/identity/v3/auth/tokens"


def offer_keystone(web: Web, **services: str) -> str:
    """Its URL; it gives a token to everybody, and in its catalogue are types with their URLs."""
    link = {"rel": "self", "href": web.url("/identity/v3/")}
    version = {"id": "v3.14", "status": "stable", "links": [link]}
    web.offer("/identity/v3", json.dumps({"version": version}).encode())
    catalogue = [
        {
            "type": type.replace("_", "-"),
            "name": type,
            "endpoints": [
                {"interface": "public", "region": "north", "region_id": "north", "url": url}
            ],
        }
        for type, url in services.items()
    ]
    token = {
        "catalog": catalogue,
        "expires_at": "2099-01-01T00:00:00Z",
        "methods": [],
        "project": {"id": PROJECT, "name": "service", "domain": {"id": "default"}},
    }
    known = Answer(headers=(("X-Subject-Token", "a-token"),))
    web.offer(TOKENS, json.dumps({"token": token}).encode(), usual=known)
    return web.url("/identity/v3")
