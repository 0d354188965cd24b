"""A terminal on a guest's serial console."""

import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager

from millpond.system.libvirtd import ConsoleStream

LEAVE = b"\x1d"
"""Ctrl-], as virsh and telnet have it."""


def attach(stream: ConsoleStream) -> None:
    """Until the guest goes off or the person leaves. Without a terminal: shows, types nothing."""
    ended = threading.Event()
    threading.Thread(target=_show, args=(stream, ended), daemon=True).start()
    try:
        if sys.stdin.isatty():
            with _raw(sys.stdin.fileno()):
                _type(stream, sys.stdin.fileno(), ended)
        else:
            ended.wait()
    finally:
        stream.close()


def _show(stream: ConsoleStream, ended: threading.Event) -> None:
    output = sys.stdout.buffer
    for content in stream.receive():
        output.write(content)
        output.flush()
    ended.set()


def _type(stream: ConsoleStream, descriptor: int, ended: threading.Event) -> None:
    while not ended.is_set():
        ready, _, _ = select.select([descriptor], [], [], 0.2)
        if not ready:
            continue
        typed = os.read(descriptor, 1024)
        if not typed or LEAVE in typed:
            return
        stream.send(typed)


@contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
