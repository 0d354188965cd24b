"""tools/walk shows which modules a command enters."""

import subprocess
import sys
from pathlib import Path

WALK = Path(__file__).parents[2] / "tools" / "walk"


def walked(*words):
    done = subprocess.run(
        [sys.executable, WALK, *words], capture_output=True, text=True, timeout=60, check=False
    )
    _, _, table = done.stdout.partition(", with their calls:\n")
    return done, [line.split()[1] for line in table.splitlines()]


def test_it_lists_the_modules_in_the_order_in_which_they_are_entered():
    done, modules = walked("image", "list", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[]\n")
    assert f"\n{len(modules)} modules in " in done.stdout
    wanted = ["cli/main.py", "cli/image.py", "config/reader.py", "images/catalogue.py"]
    assert [each for each in modules if each in wanted] == wanted
    assert not [each for each in modules if each.startswith(("servers/", "scheduling/"))]


def test_it_ends_as_the_command_ends():
    done, modules = walked("image", "show", "nothing")
    assert done.returncode == 3
    assert "there is no image 'nothing'" in done.stderr
    assert modules[-2:] == ["cli/output.py", "errors/base.py"]
