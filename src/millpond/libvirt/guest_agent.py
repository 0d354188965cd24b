"""The QEMU guest agent in a domain. What it says, the guest may have made up."""

import base64
import threading
from concurrent.futures import Future
from typing import Any

from millpond.errors import LibvirtFailed, MillpondError
from millpond.libvirt.domains import get_domain
from millpond.model.names import ServerId
from millpond.model.sizes import KiB
from millpond.system import libvirtd
from millpond.system.libvirtd import Libvirtd

_ANSWER = 5
"""Seconds that it has for an answer, as libvirt gives it for the first one."""
_PATIENCE = 30.0
"""Seconds for a password, which libvirt waits for without end."""
_MOST = 64 * KiB
"""Bytes of a file that are read: more than those that we ask for have."""
_MISSING = "No such file or directory"


class GuestAgent:
    """Raises LibvirtFailed if it does not answer, or answers with an error."""

    def __init__(self, host: Libvirtd, id: ServerId) -> None:
        self._host = host
        self._id = id

    def find_file(self, path: str) -> bytes | None:
        """Its first bytes, or None if the guest has no such file."""
        handle = self._open(path)
        if handle is None:
            return None
        try:
            answer = self._ask("guest-file-read", handle=handle, count=_MOST)
            return base64.b64decode(answer["buf-b64"])
        except (KeyError, TypeError, ValueError):  # not what an agent of QEMU's answers
            return b""
        finally:
            self._ask("guest-file-close", handle=handle)

    def has(self, path: str) -> bool:
        """Whether there is such a file or directory."""
        handle = self._open(path)
        if handle is not None:
            self._ask("guest-file-close", handle=handle)
        return handle is not None

    def set_password(self, user: str, password: str) -> None:
        """Raises TimeoutError, too. The thread of an agent that hangs goes with the process."""
        answer: Future[None] = Future()

        def ask() -> None:
            try:
                with get_domain(
                    self._host, self._id, "setting a password in the guest of", slow=True
                ) as domain:
                    domain.setUserPassword(user, password, 0)
                answer.set_result(None)
            except MillpondError as error:
                answer.set_exception(error)

        threading.Thread(target=ask, daemon=True).start()
        answer.result(_PATIENCE)

    def _open(self, path: str) -> int | None:
        try:
            handle: int = self._ask("guest-file-open", path=path, mode="r")
        except LibvirtFailed as error:
            if _MISSING in error.detail:
                return None
            raise
        return handle

    def _ask(self, command: str, **arguments: object) -> Any:
        with get_domain(self._host, self._id, "asking the agent of", slow=True) as domain:
            return libvirtd.command_agent(domain, command, _ANSWER, **arguments)
