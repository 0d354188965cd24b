"""A real iSCSI target, tgtd: it needs nothing of the kernel, and QEMU as a client neither."""

import contextlib
import itertools
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.support.loopback import ADDRESS
from tests.support.openstack.environment import tgt
from tests.support.openstack.service import Service

_TARGET = "iqn.2026-11.test.millpond:ponds"
_TARGET_NUMBER = "1"


class IscsiTarget(Service):
    """One target; each file that is offered is a LUN of it."""

    # After SIGTERM it waits until somebody has removed its last target.
    _stop_signal = signal.SIGKILL

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._numbers = itertools.count(1)  # 0 is the target's own
        self._offered: dict[int, Path] = {}

    @contextlib.contextmanager
    def offer(self, path: Path) -> Iterator[str]:
        """The URL of a LUN with the bytes of this file, for as long as the block lasts."""
        number = next(self._numbers)
        self._offered[number] = path
        self._add_lun(number, path)
        try:
            yield f"iscsi://{ADDRESS}:{self.port}/{_TARGET}/{number}"
        finally:
            del self._offered[number]
            if self.is_running:
                self._administer("delete", "logicalunit", "--lun", str(number))

    def _configure(self) -> None:
        (self.directory / "run/tgtd").mkdir()  # for its administration socket

    def _command(self) -> list[str]:
        return [str(tgt("tgtd")), "--foreground", "--iscsi", f"portal={ADDRESS}:{self.port}"]

    def _furnish(self) -> None:
        # It keeps nothing.
        self._administer("new", "target", "--targetname", _TARGET)
        self._administer("bind", "target", "--initiator-address", ADDRESS)
        for number, path in self._offered.items():
            self._add_lun(number, path)

    def _add_lun(self, number: int, path: Path) -> None:
        self._administer("new", "logicalunit", "--lun", str(number), "--backing-store", str(path))

    def _administer(self, deed: str, what: str, *words: str) -> None:
        common = ("--lld", "iscsi", "--tid", _TARGET_NUMBER, "--op", deed, "--mode", what)
        self._host.run(str(tgt("tgtadm")), *common, *words)
