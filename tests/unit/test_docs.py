"""The documents are true to the code."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.servers.recover import VERBS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_the_command_reference_is_what_the_commands_say():
    made = runpy.run_path(str(ROOT / "tools" / "reference"))["reference"]()
    assert made == (DOCS / "commands.md").read_text(), "run tools/reference"


def test_the_architecture_names_every_room():
    text = (DOCS / "architecture.md").read_text()
    rooms = [
        f"{path.stem}/" if path.is_dir() else path.name
        for path in (ROOT / "src" / "millpond").iterdir()
        if not path.name.startswith("_") and path.suffix != ".typed"
    ]
    assert [room for room in rooms if f"`{room}`" not in text] == []


def test_the_architecture_shows_every_step_of_every_verb():
    text = (DOCS / "architecture.md").read_text()
    for name, verb in VERBS.items():
        steps = " ─▶ ".join(verb(None, {}).step_names)
        assert re.search(rf"^ {name}: +{re.escape(steps)}\b", text, re.M), name


@pytest.mark.timeout(120)
def test_the_documentation_builds_without_a_warning(tmp_path):
    for builder in ("html", "man"):
        done = subprocess.run(
            [sys.executable, "-m", "sphinx", "-W", "-q", "-b", builder, DOCS, tmp_path / builder],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert "millpond server create" in (tmp_path / "man" / "millpond.1").read_text()
