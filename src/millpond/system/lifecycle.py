"""What libvirt reports of the lives of a host's domains, for all who listen at once: a connection
takes one callback of a kind that is for no single domain, and refuses another."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from millpond.system import libvirt_migration as names

Note = Callable[[str, int], None]
"""Told the id of a domain, and what became of it (VIR_DOMAIN_EVENT_*)."""


class Lifecycle:
    def __init__(self, calling: Callable[[], AbstractContextManager[Any]]) -> None:
        self._calling = calling
        self._lock = threading.Lock()
        self._notes: list[Note] = []
        self._heard: tuple[Any, int] | None = None
        """The connection, and the number that it has given the callback."""

    @contextmanager
    def heard_by(self, note: Note) -> Iterator[None]:
        with self._lock:
            self._register()
            self._notes.append(note)
        try:
            yield
        finally:
            with self._lock:
                self._notes.remove(note)
                if not self._notes:
                    self._deregister()

    def _register(self) -> None:
        with self._calling() as connection:
            if self._heard and self._heard[0] is connection and connection.isAlive():
                return
            number = connection.domainEventRegisterAny(None, names.LIFECYCLE, self._tell, None)
            self._heard = (connection, number)

    def _deregister(self) -> None:
        heard, self._heard = self._heard, None
        if heard:
            with suppress(names.Error):  # the connection may be gone
                heard[0].domainEventDeregisterAny(heard[1])

    def _tell(self, _connection: Any, domain: Any, event: int, *_rest: object) -> None:
        for note in list(self._notes):
            note(domain.UUIDString(), event)
