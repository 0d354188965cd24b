"""Somebody who is not root, with a libvirtd and a state directory of their own."""

import json
import shutil
import subprocess

from tests.support.millpond import COMMAND
from tests.support.ordinary_user import AS_NOBODY, ordinary_user
from tests.support.waiting import wait_for


def test_everything_of_ones_own_works(micro_guest):
    with ordinary_user() as user:
        shutil.copy(micro_guest.path, user.directory / "guest.raw")
        (user.directory / "guest.raw").chmod(0o644)
        user.configure()

        def run(*words):
            done = subprocess.run(
                [*AS_NOBODY, COMMAND, "--config-file", user.config, *words],
                env=user.environment,
                cwd=user.directory,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        run("image", "add", "guest.raw")
        words = ("--image", "guest", "--memory", "32M", "--network", "none", "--json")
        made = json.loads(run("server", "create", "web", *words))
        wait_for(lambda: micro_guest.marker in user.console(made["id"]), 60)
        run("server", "snapshot", "web", "snap")
        run("server", "disk", "add", "web", "--size", "8M")
        assert "no problem" in run("doctor")
        run("server", "delete", "web")
        assert not list(user.disks.iterdir())
