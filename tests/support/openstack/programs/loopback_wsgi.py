"""Serves an API on the loopback, with Keystone or as if there were one."""

from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import waitress

_ADMINISTRATOR = {
    "HTTP_X_IDENTITY_STATUS": "Confirmed",
    "HTTP_X_USER_ID": "millpond",
    "HTTP_X_PROJECT_ID": "ponds",
    "HTTP_X_ROLES": "admin,member,reader",
    # Glance's Cinder store insists on one. Where Cinder is stands in its configuration.
    "HTTP_X_SERVICE_CATALOG": "[]",
}
_LARGEST_UPLOAD = 1024**4
# Clients keep theirs open; beyond waitress' own limit of 100, new ones wait for minutes.
_MOST_CONNECTIONS = 1000


def serve_administrator(application: WSGIApplication, port: str) -> None:
    """Whoever asks is an administrator of one project.

    This stands where keystonemiddleware stands otherwise, and says of each request what that would
    say of one with a valid token. So the services need no Keystone, and their own checks stay on.
    """

    def admit(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        return application(environ | _ADMINISTRATOR, start_response)

    serve(admit, port)


def serve(application: WSGIApplication, port: str) -> None:
    waitress.serve(
        application,
        listen=f"127.0.0.1:{port}",
        threads=8,
        connection_limit=_MOST_CONNECTIONS,
        max_request_body_size=_LARGEST_UPLOAD,
    )
