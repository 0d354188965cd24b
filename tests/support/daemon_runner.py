"""Runs a daemon and waits for what it leaves: `python daemon_runner.py PROGRAM WORD…`.

QEMU leaves libvirtd's family, and libvirt waits until its process id is gone, which is when the
adopting parent has noticed its end. That is the machine's first process, and not everyone has
a good one: in a container it may look every other second, or never. This process adopts instead.

It prints the daemon's process id and ends with the last descendant.
"""

import ctypes
import os
import sys

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def main(words: list[str]) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    daemon = os.fork()
    if daemon == 0:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        os.execv(words[0], words)
    print(daemon, flush=True)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


if __name__ == "__main__":
    main(sys.argv[1:])
