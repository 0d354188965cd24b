"""tools/walk on a real host: what the whole of a command enters."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support.millpond import converted

WALK = Path(__file__).parents[2] / "tools" / "walk"
MOST_MODULES = 45


def walk(config, *words):
    """What it printed of its walk."""
    done = subprocess.run(
        [sys.executable, WALK, "--config-file", config, *words],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    return done.stdout.partition("\nrooms, and how often")[2]


def test_the_walk_of_server_create_is_short(millpond, micro_guest, workdir):
    millpond.ok("image", "add", converted(micro_guest, "qcow2", workdir), "--name", "micro")
    words = ("server", "create", "web", "--image", "micro", "--memory", "16M", "--json")
    walked = walk(millpond.config, *words)
    table = walked.partition(", with their calls:\n")[2]
    rooms = list(dict.fromkeys(line.split()[1].split("/")[0] for line in table.splitlines()))
    assert rooms[0] == "cli"
    assert {"templates", "disks", "servers", "libvirt", "records"} <= set(rooms)
    assert "nova" not in rooms
    assert int(re.search(r"(\d+) of them in rooms that do", walked)[1]) <= MOST_MODULES


def test_a_decision_among_hosts_enters_scheduling_once(multi_host, micro_guest):
    multi_host.ok("image", "add", micro_guest.path, "--name", "micro")
    words = ("server", "create", "web", "--image", "micro", "--memory", "16M", "--dry-run")
    assert " scheduling 1," in walk(multi_host.config, *words)
