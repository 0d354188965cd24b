"""Placement in this process, on SQLite: the only importer of placement, and slow to import.

Placement keeps its database in a global of its module. Here each directory has its own, and
requests to one wait while there are requests to another: in one process that happens in tests.
"""

import io
import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from oslo_config import cfg
from oslo_db.sqlalchemy import enginefacade
from placement import conf, db_api, deploy
from placement.objects import resource_class, trait

from millpond.errors import PlacementFailed, StateNotWritable
from millpond.scheduling.api import WRITING, Answer
from millpond.system.locks import Locks

_FILE = "placement.sqlite"
_BUSY_SECONDS = 60
"""Readers wait at most as long as a writer's last step takes; this is for machines that stand."""
_ADMINISTRATOR = "admin"  # noauth2 takes the token for the user's name

_QUIET = {"placement": logging.CRITICAL, "alembic": logging.WARNING, "oslo_policy": logging.ERROR}
"""Their errors come back to us as answers, and we say them ourselves."""


class _Turns:
    """Who may be in Placement now: any number of requests, all to one database."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._current: object = None
        self._inside = 0

    @contextmanager
    def at(self, database: "enginefacade._TransactionContextManager") -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._current is database or not self._inside)
            if self._current is not database:
                db_api.placement_context_manager.patch_factory(database)
                self._current = database
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()


_turns = _Turns()  # because what they are taken at is a global of the same kind


class EmbeddedPlacement:
    """A transport. One process writes at a time: docs/facts.md says what comes of it else."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._locks = Locks(directory / "locks")
        self._loading = threading.Lock()
        self._database = enginefacade.transaction_context()
        self._app: WSGIApplication | None = None

    def ask(self, method: str, path: str, version: str, body: bytes | None) -> Answer:
        app = self._load_once()
        alone = nullcontext() if method == "GET" else self._locks.hold(WRITING)
        with alone, _turns.at(self._database):
            return _call(app, _environment(method, path, version, body or b""))

    def _load_once(self) -> WSGIApplication:
        with self._loading:
            if self._app is None:
                with self._locks.hold(WRITING), _turns.at(self._database):
                    self._app = self._load()
            return self._app

    def _load(self) -> WSGIApplication:
        for name, level in _QUIET.items():
            logging.getLogger(name).setLevel(level)
        path = self._directory / _FILE
        _prepare(path)
        config = cfg.ConfigOpts()
        conf.register_opts(config)
        # The connection is required, so it has to be there before the configuration is read.
        config.set_override("connection", f"sqlite:///{path}", group="placement_database")
        config.set_override(
            "connection_parameters", f"timeout={_BUSY_SECONDS}", group="placement_database"
        )
        config.set_override("sync_on_startup", True, group="placement_database")
        config.set_override("auth_strategy", "noauth2", group="api")
        config([], project="placement", default_config_files=[], default_config_dirs=[])
        settings = dict(config.placement_database)
        del settings["sync_on_startup"]  # Placement's own, and not the database's
        self._database.configure(**settings)
        # Once a process, it thinks; but this database has its own traits and classes.
        trait._TRAITS_SYNCED = False
        resource_class._RESOURCE_CLASSES_SYNCED = False
        app: WSGIApplication = deploy.loadapp(config)
        return app


def _prepare(path: Path) -> None:
    """Readers do not wait for writers, nor these for readers, with a log of what is written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        path.touch(mode=0o660)  # what SQLite makes next to it has the same
        with sqlite3.connect(path, timeout=_BUSY_SECONDS) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
        connection.close()
    except (OSError, sqlite3.OperationalError) as error:
        raise StateNotWritable(path, str(error)) from error
    except sqlite3.DatabaseError as error:
        raise PlacementFailed("opening its database", f"{path} is damaged ({error})") from error


def _environment(method: str, path: str, version: str, body: bytes) -> WSGIEnvironment:
    place, _, query = path.partition("?")
    return {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": place,
        "QUERY_STRING": query,
        "SERVER_NAME": "millpond",
        "SERVER_PORT": "0",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_LENGTH": str(len(body)),
        "CONTENT_TYPE": "application/json" if body else "",
        "HTTP_X_AUTH_TOKEN": _ADMINISTRATOR,
        "HTTP_OPENSTACK_API_VERSION": f"placement {version}",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }


def _call(app: WSGIApplication, environment: WSGIEnvironment) -> Answer:
    statuses: list[str] = []

    def start(status: str, *_: object) -> None:
        statuses.append(status)

    respond: StartResponse = start  # type: ignore[assignment]  # nobody uses its write()
    body = b"".join(app(environment, respond))
    return Answer(status=int(statuses[-1].split()[0]), body=body)
