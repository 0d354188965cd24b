"""The linters, run as tests: the architecture is a contract like any other."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    "words",
    [
        ["ruff", "check"],
        ["ruff", "format", "--check"],
        ["mypy"],
        ["lint-imports", "--no-cache"],
    ],
    ids=" ".join,
)
def test_it_is_clean(words):
    done = subprocess.run(
        [BIN / words[0], *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_modules_and_classes_stay_small():
    """A module has at most 400 lines, a class at most 15 public methods: functions in its body
    without a leading underscore. Properties and cached properties do not count: a record of
    collaborators may have many."""
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        source, name = path.read_text(), path.relative_to(ROOT)
        if (lines := len(source.splitlines())) > 400:
            found.append(f"{name} has {lines} lines")
        for each in ast.walk(ast.parse(source)):
            if isinstance(each, ast.ClassDef) and (methods := public_methods(each)) > 15:
                found.append(f"{name}: {each.name} has {methods} public methods")
    assert found == []


def public_methods(found: ast.ClassDef) -> int:
    properties = ("property", "cached_property", "setter")
    return sum(
        isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        and not each.name.startswith("_")
        and not any(ast.unparse(by).endswith(properties) for by in each.decorator_list)
        for each in found.body
    )


def test_no_file_names_a_machine_or_a_registry():
    if not (ROOT / ".git").exists():
        pytest.skip("which files are ours is known only in a git checkout: git clone")
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    banned = re.compile(r"/work/(main|shared)|pypi\.org|pythonhosted|deb\.debian\.org|npmjs")
    found = [
        name
        for name in filter(None, tracked)
        if name != "tests/unit/test_style.py"
        and banned.search((ROOT / name).read_text(errors="replace"))
    ]
    assert found == []
