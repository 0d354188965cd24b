"""Somebody who is not root, with a libvirtd and a state directory of their own."""

import contextlib
import functools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from millpond.cli.main import main
from tests.support import forked
from tests.support.millpond import COMMAND, Millpond

# With terminals that anybody may open, as on any machine but in some containers.
_BECOME = (
    "mount -t devpts -o newinstance,ptmxmode=0666 devpts /dev/pts && "
    'exec setpriv --reuid nobody --regid nogroup --clear-groups "$@"'
)
AS_NOBODY = ("unshare", "--mount", "sh", "-c", _BECOME, "sh")


@dataclass(frozen=True, slots=True, kw_only=True)
class OrdinaryUser(Millpond):
    """The command as nobody's, whose home is the directory."""

    uri: str = "qemu:///session"

    @property
    def environment(self) -> dict[str, str]:
        run = f"{self.directory}/run"
        return {
            "HOME": str(self.directory),
            "XDG_RUNTIME_DIR": run,
            "USER": "nobody",
            "PATH": os.environ["PATH"],
        }

    @property
    def socket_uri(self) -> str:
        """For those who look on from outside."""
        return f"{self.uri}?socket={self.directory}/run/libvirt/libvirt-sock"

    def run(self, *words: object, seconds: float = 100) -> subprocess.CompletedProcess[str]:
        told = ["millpond", "--config-file", str(self.config), *map(str, words)]
        return forked.run(functools.partial(become_nobody, self.environment), told, seconds)

    def start_libvirtd(self) -> None:
        """By the first command, as for anybody; it stays as long as a server runs."""
        command = [*AS_NOBODY, COMMAND, "--config-file", self.config, "pool", "list"]
        subprocess.run(command, env=self.environment, cwd=self.directory, check=True)


def become_nobody(environment: dict[str, str], program: Callable[[], None] = main) -> None:
    nobody = pwd.getpwnam("nobody")
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(environment["HOME"])
    program()


@contextlib.contextmanager
def ordinary_user() -> Iterator[OrdinaryUser]:
    """Its path is short, because the path of a socket is."""
    path = Path(tempfile.mkdtemp(prefix="mp-", dir="/tmp"))
    (path / "run").mkdir(mode=0o700)
    for each in (path, path / "run"):
        shutil.chown(each, "nobody", "nogroup")
    try:
        yield OrdinaryUser(directory=path)
    finally:
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((path / "run" / "libvirt" / "libvirtd.pid").read_text()), signal.SIGTERM)
        shutil.rmtree(path, ignore_errors=True)
