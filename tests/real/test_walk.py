"""tools/walk on a real host: what the whole of a command enters."""

import subprocess
import sys
from pathlib import Path

from tests.support.millpond import converted

WALK = Path(__file__).parents[2] / "tools" / "walk"


def test_the_walk_of_server_create_shows_its_way(millpond, micro_guest, workdir):
    millpond.ok("image", "add", converted(micro_guest, "qcow2", workdir), "--name", "micro")
    words = ("server", "create", "web", "--image", "micro", "--memory", "16M", "--json")
    done = subprocess.run(
        [sys.executable, WALK, "--config-file", millpond.config, *words],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    _, _, table = done.stdout.partition(", with their calls:\n")
    rooms = list(dict.fromkeys(line.split()[1].split("/")[0] for line in table.splitlines()))
    assert rooms[0] == "cli"
    assert {"templates", "disks", "servers", "libvirt", "records"} <= set(rooms)
    assert "nova" not in rooms
