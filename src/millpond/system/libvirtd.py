"""The one module that imports libvirt, and the one place where its errors become ours."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import libvirt
import libvirt_qemu

from millpond.errors import (
    CephUnreachable,
    ConnectionLost,
    HostUnreachable,
    LibvirtFailed,
    MillpondError,
    TooOld,
)
from millpond.system.lifecycle import Lifecycle
from millpond.system.waiting import POLL

LOG = logging.getLogger(__name__)

T = TypeVar("T")

Connection = Any
"""libvirt.virConnect: the bindings carry no types."""

NO_SUCH_POOL: int = libvirt.VIR_ERR_NO_STORAGE_POOL
NO_SUCH_VOLUME: int = libvirt.VIR_ERR_NO_STORAGE_VOL
NO_SUCH_DOMAIN: int = libvirt.VIR_ERR_NO_DOMAIN
OPERATION_FAILED: int = libvirt.VIR_ERR_OPERATION_FAILED
NO_SUCH_NETWORK: int = libvirt.VIR_ERR_NO_NETWORK
NO_SUPPORT: int = libvirt.VIR_ERR_NO_SUPPORT
NO_METADATA = {libvirt.VIR_ERR_NO_DOMAIN_METADATA, libvirt.VIR_ERR_OPERATION_INVALID}
NO_AGENT: int = libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED  # where there is no channel for one
AGENT_SILENT = {libvirt.VIR_ERR_AGENT_UNRESPONSIVE, libvirt.VIR_ERR_AGENT_UNSYNCED}
VOLUME_EXISTS: int = libvirt.VIR_ERR_STORAGE_VOL_EXIST
POOL_BUSY: int = libvirt.VIR_ERR_INTERNAL_ERROR  # of a refresh while a volume is being built

POOL_DEFINE_FLAGS: int = libvirt.VIR_STORAGE_POOL_DEFINE_VALIDATE
DOMAIN_DEFINE_FLAGS: int = libvirt.VIR_DOMAIN_DEFINE_VALIDATE
DOMAIN_TRANSIENT_FLAGS: int = (
    libvirt.VIR_DOMAIN_START_VALIDATE | libvirt.VIR_DOMAIN_START_AUTODESTROY
)
"""For a domain that is never defined and ends with our connection, however that ends."""
UNDEFINE_FLAGS: int = (
    libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
    | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
)
UNDEFINE_NVRAM: int = libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
KEEP_NVRAM: int = libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM
METADATA_ELEMENT: int = libvirt.VIR_DOMAIN_METADATA_ELEMENT
AFFECT_LIVE: int = libvirt.VIR_DOMAIN_AFFECT_LIVE
AFFECT_CONFIG: int = libvirt.VIR_DOMAIN_AFFECT_CONFIG
REBOOTED: int = libvirt.VIR_DOMAIN_EVENT_ID_REBOOT
MODIFY_FORCE: int = libvirt.VIR_DOMAIN_DEVICE_MODIFY_FORCE
START_PAUSED: int = libvirt.VIR_DOMAIN_START_PAUSED
START_AUTODESTROY: int = libvirt.VIR_DOMAIN_START_AUTODESTROY
RESET_NVRAM: int = libvirt.VIR_DOMAIN_START_RESET_NVRAM
LIST_PERSISTENT: int = libvirt.VIR_CONNECT_LIST_DOMAINS_PERSISTENT
LIST_AUTOSTART: int = libvirt.VIR_CONNECT_LIST_DOMAINS_AUTOSTART
LIST_ACTIVE: int = libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE
XML_INACTIVE: int = libvirt.VIR_DOMAIN_XML_INACTIVE
XML_WHOLE: int = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
"""As it is defined, with its secrets."""
RESIZE_BYTES: int = libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES
CONSOLE_FORCE: int = libvirt.VIR_DOMAIN_CONSOLE_FORCE
FREEZE_FLAGS: int = (
    libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_DISK_ONLY
    | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_NO_METADATA
    | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REUSE_EXT
    | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_ATOMIC
    | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_VALIDATE
)
COMMIT_FLAGS = libvirt.VIR_DOMAIN_BLOCK_COMMIT_ACTIVE | libvirt.VIR_DOMAIN_BLOCK_COMMIT_SHALLOW
"""The layer that the guest writes to, into the next below it and no further."""
MIRROR_FLAGS: int = (
    libvirt.VIR_DOMAIN_BLOCK_COPY_REUSE_EXT | libvirt.VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB
)
"""Into an image that we made; the job need not outlive QEMU, so the domain may stay defined."""
MIRROR_TOP: int = libvirt.VIR_DOMAIN_BLOCK_COPY_SHALLOW
PIVOT: int = libvirt.VIR_DOMAIN_BLOCK_JOB_ABORT_PIVOT
UPLOAD_SPARSE: int = libvirt.VIR_STORAGE_VOL_UPLOAD_SPARSE_STREAM
DOWNLOAD_SPARSE: int = libvirt.VIR_STORAGE_VOL_DOWNLOAD_SPARSE_STREAM
STOP_AT_HOLE: int = libvirt.VIR_STREAM_RECV_STOP_AT_HOLE
ADD: int = libvirt.VIR_NETWORK_UPDATE_COMMAND_ADD_LAST
MODIFY: int = libvirt.VIR_NETWORK_UPDATE_COMMAND_MODIFY
DELETE: int = libvirt.VIR_NETWORK_UPDATE_COMMAND_DELETE
DHCP_HOST: int = libvirt.VIR_NETWORK_SECTION_IP_DHCP_HOST
NETWORK_LIVE: int = libvirt.VIR_NETWORK_UPDATE_AFFECT_LIVE
NETWORK_CONFIG: int = libvirt.VIR_NETWORK_UPDATE_AFFECT_CONFIG
NETWORK_XML_INACTIVE: int = libvirt.VIR_NETWORK_XML_INACTIVE
AGENT_UNLIMITED: int = libvirt.VIR_DOMAIN_AGENT_RESPONSE_TIMEOUT_BLOCK
"""libvirt's own patience with a guest agent, once that is in step."""
FROM_ARP: int = libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_ARP
FROM_AGENT: int = libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT

STUCK: list[int] = [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR]
"""State and reason of a guest that QEMU has paused itself."""
NO_SPACE_LEFT: int = libvirt.VIR_DOMAIN_DISK_ERROR_NO_SPACE

STATES: dict[int, str] = {
    libvirt.VIR_DOMAIN_NOSTATE: "unknown",
    libvirt.VIR_DOMAIN_RUNNING: "running",
    libvirt.VIR_DOMAIN_BLOCKED: "running",
    libvirt.VIR_DOMAIN_PAUSED: "paused",
    libvirt.VIR_DOMAIN_SHUTDOWN: "stopping",
    libvirt.VIR_DOMAIN_SHUTOFF: "stopped",
    libvirt.VIR_DOMAIN_CRASHED: "crashed",
    libvirt.VIR_DOMAIN_PMSUSPENDED: "suspended",
}

MINIMUM_LIBVIRT = (9, 0, 0)
MINIMUM_QEMU = (7, 2, 0)

PATIENCE = 30.0
"""Seconds that a host has to answer, when it is first spoken to and later: one that does not is
taken to be gone, and what waits for it ends."""
_QUESTIONS = 6
"""That is asked so many times in these seconds, but not more than once a second."""

_ADVICE = (
    ("resolve", "check the host's name in connection_uri"),
    ("did not answer", "see whether the host is up, and no firewall in between"),
    (
        "certificate",
        "see libvirt.org/kbase/tlscerts.html: this machine needs the CA's certificate "
        "and one of its own, and the host's must bear the name in connection_uri",
    ),
    ("Host key", "connect once by ssh, and compare the host's key"),
    ("Permission denied", "give this user's ssh key to the host"),
    ("authentication", "see libvirt.org/auth.html for what the host's libvirtd asks for"),
    ("refused", "start libvirtd there, and let it listen, or connect by qemu+ssh"),
)
"""By words in what libvirt says of a host in the network."""
_LOCAL_ADVICE = (
    ("did not answer", "restart libvirtd ('systemctl restart libvirtd'); servers go on meanwhile"),
)

_ASK_AFTER = 1.0
"""Seconds without a call after which a connection is asked whether it still answers."""


class Libvirtd:
    """One host's libvirt by two lazy connections that reconnect: one for quick calls, one for
    slow ones, because a connection carries five calls at a time (trap 10)."""

    def __init__(
        self,
        uri: str,
        *,
        minimum_libvirt: tuple[int, ...] = MINIMUM_LIBVIRT,
        minimum_qemu: tuple[int, ...] = MINIMUM_QEMU,
        patience: float = PATIENCE,
    ) -> None:
        self.uri = uri
        self._minimum = (minimum_libvirt, minimum_qemu)
        self._patience = patience
        self._open: dict[bool, tuple[Connection, float]] = {}
        self._lock = threading.Lock()
        self.lifecycle = Lifecycle(partial(self.calling, "listening to events", slow=True))
        # libvirt prints every error to stderr unless a handler is set.
        libvirt.registerErrorHandler(lambda _context, _error: None, None)

    @contextmanager
    def calling(self, doing: str, *, slow: bool = False) -> Iterator[Connection]:
        """A live connection for the block; libvirt's errors come out as ours, saying ``doing``."""
        connection = self._connection(slow)
        try:
            yield connection
        except libvirt.libvirtError as error:
            raise self._ours(error, doing) from error

    def versions(self) -> tuple[str, str]:
        """libvirt's and QEMU's versions, as people write them."""
        with self.calling("asking for versions") as connection:
            return _dotted(connection.getLibVersion()), _dotted(connection.getVersion())

    def offers(self, virt_type: str) -> bool:
        """Whether the host's emulator runs guests of this type, as libvirt found out."""
        try:
            with self.calling(f"asking for {virt_type}") as connection:
                connection.getDomainCapabilities(None, None, None, virt_type, 0)
        except LibvirtFailed:
            return False
        return True

    def close(self) -> None:
        """A connection is closed when the last thread that uses it lets it go: closed under a
        call, it would be freed under it, too."""
        with self._lock:
            self._open.clear()

    def _connection(self, slow: bool) -> Connection:
        """Without the lock while it waits: a host that does not answer holds nobody else."""
        with self._lock:
            known, used = self._open.get(slow, (None, 0.0))
        now = time.monotonic()
        if known is not None and (now - used <= _ASK_AFTER or self._answers(known)):
            return self._keep(slow, known, instead_of=known)
        if known is not None:
            LOG.debug("reconnecting to %s: the connection was lost", self.uri)
        return self._keep(slow, self._connect(), instead_of=known)

    def _keep(self, slow: bool, connection: Connection, instead_of: Connection) -> Connection:
        """Unless another thread has reconnected meanwhile: then that one's."""
        with self._lock:
            found, _ = self._open.get(slow, (None, 0.0))
            chosen = connection if found in (None, instead_of) else found
            self._open[slow] = (chosen, time.monotonic())
        return chosen

    def _answers(self, connection: Connection) -> bool:
        try:
            return self._ask(lambda: bool(connection.isAlive() and connection.getLibVersion()))
        except (libvirt.libvirtError, TimeoutError):
            return False

    def _connect(self) -> Connection:
        _run_event_loop()  # before the connection is opened, or it keeps out of it
        try:
            connection, libvirt_version, qemu_version = self._ask(self._open_connection)
        except TimeoutError as error:
            reason = f"it did not answer within {self._patience:g} s"
            raise _unreachable(self.uri, reason) from error
        except libvirt.libvirtError as error:
            raise _unreachable(self.uri, _plain(error)) from error
        _require("libvirt", libvirt_version, self._minimum[0])
        _require("QEMU", qemu_version, self._minimum[1])
        return connection

    def _open_connection(self) -> tuple[Connection, int, int]:
        connection = libvirt.open(self.uri)
        every = max(1, int(self._patience) // _QUESTIONS)
        connection.setKeepAlive(every, max(1, int(self._patience) // every - 1))
        return connection, connection.getLibVersion(), connection.getVersion()

    def _ask(self, ask: Callable[[], T]) -> T:
        """Ask in a thread of its own, which goes with the process: libvirt sets no limit to
        opening, and a host that is switched off would hold us for minutes."""
        answer: Future[T] = Future()
        threading.Thread(target=_answer, args=(ask, answer), daemon=True).start()
        return answer.result(self._patience)

    def _ours(self, error: "libvirt.libvirtError", doing: str) -> MillpondError:
        if error.get_error_domain() == libvirt.VIR_FROM_RPC or "keepalive" in _plain(error):
            with self._lock:
                self._open.clear()
            return ConnectionLost(self.uri, doing)
        if "RADOS monitor" in _plain(error):  # what follows it is always "No such file"
            return CephUnreachable()
        return LibvirtFailed(doing, error.get_error_code(), _plain(error))


class ConsoleStream:
    """What a guest prints and what is typed to it. One thread receives, another sends."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def receive(self) -> Iterator[bytes]:
        """Until the guest goes off or the stream is closed on our side."""
        try:
            while content := self._stream.recv(4096):
                yield content
        except libvirt.libvirtError as error:
            LOG.debug("the console ended: %s", _plain(error))

    def send(self, content: bytes) -> None:
        """Typing into a console that has just ended is no error."""
        with suppress(libvirt.libvirtError):
            self._stream.send(content)

    def close(self) -> None:
        with suppress(libvirt.libvirtError):
            self._stream.abort()


@contextmanager
def open_stream(handle: Any) -> Iterator[Any]:
    """By the connection that a pool or volume was found by. Broken off, libvirt is told."""
    stream = handle.connect().newStream(0)
    try:
        yield stream
    except BaseException:
        with suppress(libvirt.libvirtError):  # it may have broken off by itself
            stream.abort()
        raise


def create_validated(create: Callable[[int], T]) -> T:
    """Call with libvirt's VALIDATE flag. libvirt 9.0 knows the flag and then refuses it in its
    own parser; there the call is made without."""
    try:
        return create(libvirt.VIR_STORAGE_VOL_CREATE_VALIDATE)
    except libvirt.libvirtError as error:
        if "unsupported flags" not in str(error):
            raise
    return create(0)


def list_open_files(domain: Any) -> frozenset[str]:
    """Of a running domain's disks, by QEMU's own word."""
    answer = libvirt_qemu.qemuMonitorCommand(
        domain, json.dumps({"execute": "query-named-block-nodes", "arguments": {"flat": True}}), 0
    )
    return frozenset(each["file"] for each in json.loads(answer)["return"])


def command_agent(domain: Any, command: str, seconds: int, **arguments: object) -> Any:
    """What the agent in a guest answers to a command of its own protocol."""
    words = json.dumps({"execute": command, "arguments": arguments})
    return json.loads(libvirt_qemu.qemuAgentCommand(domain, words, seconds, 0))["return"]


def start_pool(pool: Any) -> None:
    """One that is active, or that somebody is just starting, is no error."""
    while not pool.isActive():
        try:
            pool.create(0)
        except libvirt.libvirtError as error:
            if "starting up" not in str(error) and not pool.isActive():
                raise
            time.sleep(POLL)


def find_domain(connection: Connection, uuid: str) -> Any | None:
    return unless_gone(lambda: connection.lookupByUUIDString(uuid))


def find_state(connection: Connection, uuid: str) -> str | None:
    state = unless_gone(lambda: connection.lookupByUUIDString(uuid).state(0)[0])
    return STATES.get(state, "unknown") if state is not None else None


def unless_gone(ask: Callable[[], T]) -> T | None:
    """The answer, or None if there is no such domain (any more)."""
    try:
        return ask()
    except libvirt.libvirtError as error:
        if error.get_error_code() == NO_SUCH_DOMAIN:
            return None
        raise


def _answer(ask: Callable[[], T], answer: "Future[T]") -> None:
    try:
        answer.set_result(ask())
    except libvirt.libvirtError as error:
        answer.set_exception(error)


@cache
def _run_event_loop() -> None:
    """Once in a process: without it libvirt does not ask whether a host still answers. Nova has
    one of its own; libvirt lets them take turns."""
    libvirt.virEventRegisterDefaultImpl()

    def run() -> None:
        while True:
            try:
                libvirt.virEventRunDefaultImpl()
            except libvirt.libvirtError as error:
                LOG.debug("the event loop: %s", _plain(error))
                time.sleep(_ASK_AFTER)

    threading.Thread(target=run, daemon=True).start()


def _unreachable(uri: str, reason: str) -> HostUnreachable:
    advice = _ADVICE if urlsplit(uri).hostname else _LOCAL_ADVICE
    advised = next((advised for words, advised in advice if words in reason), "")
    return HostUnreachable(uri, reason, advised) if advised else HostUnreachable(uri, reason)


def _plain(error: "libvirt.libvirtError") -> str:
    """The last part says it; the rest repeats libvirt's own categories."""
    return str(error.get_error_message() or error).strip().splitlines()[-1]


def _dotted(version: int) -> str:
    return ".".join(map(str, _parts(version)))


def _parts(version: int) -> tuple[int, int, int]:
    return version // 1_000_000, version // 1_000 % 1_000, version % 1_000


def _require(what: str, version: int, minimum: tuple[int, ...]) -> None:
    if _parts(version) < minimum:
        raise TooOld(what, _dotted(version), ".".join(map(str, minimum)))
