"""Somebody who is not root, with a libvirtd and a state directory of their own."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.waiting import wait_for

# With terminals that anybody may open, as on any machine but in some containers.
_BECOME = (
    "mount -t devpts -o newinstance,ptmxmode=0666 devpts /dev/pts && "
    'exec setpriv --reuid nobody --regid nogroup --clear-groups "$@"'
)
AS_NOBODY = ("unshare", "--mount", "sh", "-c", _BECOME, "sh")


@pytest.fixture
def home():
    """Short, because the path of a socket is."""
    path = Path(tempfile.mkdtemp(prefix="mp-", dir="/tmp"))
    shutil.chown(path, "nobody", "nogroup")
    yield path
    with contextlib.suppress(OSError, ValueError):
        os.kill(int((path / "run" / "libvirt" / "libvirtd.pid").read_text()), signal.SIGTERM)
    shutil.rmtree(path, ignore_errors=True)


def test_everything_of_ones_own_works(home, micro_guest):
    shutil.copy(micro_guest.path, home / "guest.raw")
    (home / "guest.raw").chmod(0o644)
    config = home / "millpond.conf"
    config.write_text(
        f"[DEFAULT]\nstate_path = {home}/state\n"
        "[libvirt]\nconnection_uri = qemu:///session\nvirt_type = qemu\n"
    )
    (home / "run").mkdir(mode=0o700)
    shutil.chown(home / "run", "nobody", "nogroup")
    environment = {"HOME": str(home), "XDG_RUNTIME_DIR": f"{home}/run", "PATH": os.environ["PATH"]}

    def run(*words):
        command = [Path(sys.executable).with_name("millpond"), "--config-file", config, *words]
        done = subprocess.run(
            [*AS_NOBODY, *command],
            env=environment,
            cwd=home,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("image", "add", "guest.raw")
    words = ("--image", "guest", "--memory", "32M", "--network", "none", "--json")
    made = json.loads(run("server", "create", "web", *words))
    console = home / "state" / "instances" / made["id"] / "console.log"
    wait_for(lambda: console.exists() and micro_guest.marker in console.read_text(), 60)
    run("server", "snapshot", "web", "snap")
    run("server", "disk", "add", "web", "--size", "8M")
    assert "no problem" in run("doctor")
    run("server", "delete", "web")
    assert not list((home / "state" / "instances" / "disks").iterdir())
