"""The documents are true to the code."""

import ast
import re
import runpy
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from millpond.doctor.checks import CHECKS
from millpond.servers.recover import VERBS
from tests.support.operations import page
from tests.support.verbs import steps_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
THIS = Path(__file__)


def test_the_command_reference_is_what_the_commands_say():
    made = runpy.run_path(str(ROOT / "tools" / "reference"))["reference"]()
    assert made == (DOCS / "commands.md").read_text(), "run tools/reference"


def test_the_page_of_errors_is_what_the_errors_say():
    made = runpy.run_path(str(ROOT / "tools" / "reference"))["errors"]()
    assert made == (DOCS / "errors.md").read_text(), "run tools/reference"


def test_the_table_of_operations_is_the_one_that_is_walked():
    made = "\n".join(page()) + "\n"
    assert made == (DOCS / "operations.md").read_text(), "run tools/operations"


def test_the_architecture_names_every_room():
    text = (DOCS / "architecture.md").read_text()
    rooms = [
        f"{path.stem}/" if path.is_dir() else path.name
        for path in (ROOT / "src" / "millpond").iterdir()
        if not path.name.startswith("_")
        and path.suffix != ".typed"
        and (path.is_file() or (path / "__init__.py").exists())  # not what a pull left of a room
    ]
    assert [room for room in rooms if f"`{room}`" not in text] == []


def test_the_architecture_shows_every_step_of_every_verb():
    text = (DOCS / "architecture.md").read_text()
    for name in VERBS:
        steps = " ─▶ ".join(steps_of(name))
        assert re.search(rf"^ {name}: +{re.escape(steps)}\b", text, re.M), name


def test_the_architecture_names_only_what_is_there():
    text = (DOCS / "architecture.md").read_text()
    named = re.findall(r"`([\w/]+\.py):([\w.]+)`", text)
    assert len(named) > 30
    assert [f"{module}:{name}" for module, name in named if name not in _names_in(module)] == []


@cache
def _names_in(module):
    """Functions and classes, and what classes define, as ``Class.name``."""
    path = ROOT / "src" / "millpond" / module
    if not path.exists():
        return set()
    tree = ast.parse(path.read_text())
    named = (ast.FunctionDef, ast.ClassDef)
    top = [each for each in tree.body if isinstance(each, named)]
    return {each.name for each in top} | {
        f"{each.name}.{inner.name}"
        for each in top
        if isinstance(each, ast.ClassDef)
        for inner in each.body
        if isinstance(inner, named)
    }


# What code, tests and pages refer to by number, in its one form, and where that is.
REFERENCES = {
    r"\bB([1-9]\d?)\b": lambda n: f'<a id="b{n}"></a>**B{n}**' in _read("behaviours.md"),
    r"\btrap (\d+)\b": lambda n: f'<a id="trap-{n}"></a>**trap {n}**' in _read("facts.md"),
    r"\bdecision (\d+)\b": lambda n: list((DOCS / "decisions").glob(f"{n:0>4}-*.md")),
    r"\bdocs/decisions/(\d+)\b": lambda n: list((DOCS / "decisions").glob(f"{n}-*.md")),
    r"\bdocs/([\w-]+\.md)\b": lambda page: (DOCS / page).exists(),
}
OTHER_FORMS = r"\b(?:Trap|[Tt]raps|Decision|[Dd]ecisions) \d+|\bB\d+ ?(?:-|to) ?B\d+|\blab, "


def test_every_reference_leads_somewhere():
    assert [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path, text in _texts()
        for pattern, leads_somewhere in REFERENCES.items()
        for match in re.finditer(pattern, text)
        if not leads_somewhere(match.group(1))
    ] == []


def test_no_two_decisions_have_one_number():
    numbers = Counter(each.name[:4] for each in (DOCS / "decisions").glob("*.md"))
    assert [number for number, count in numbers.items() if count > 1] == []


def test_every_reference_has_the_one_form_that_is_checked():
    assert [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path, text in _texts()
        for match in re.finditer(OTHER_FORMS, text)
    ] == []


def _texts():
    for room in ("src", "tests", "tools", "docs"):
        for path in (ROOT / room).rglob("*"):
            if path.is_file() and path.suffix in ("", ".py", ".sh", ".md") and path != THIS:
                yield path, path.read_text()


@cache
def _read(page):
    return (DOCS / page).read_text()


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


def test_the_errors_of_a_configuration_are_shown_as_they_are(tmp_path):
    page = (DOCS / "configuration.md").read_text()
    written = re.search(
        r"With this file\n\n```ini\n(.*?)```.*?folded here\):\n\n```\n(.*?)```", page, re.S
    )
    path = tmp_path / "millpond.conf"
    path.write_text(written[1])
    words = ["millpond.cli.entry", "--config-file", path, "config", "check"]
    code = "import sys; from millpond.cli.entry import main; sys.argv = sys.argv[1:]; main()"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    said = done.stderr.replace(str(path), "/etc/millpond/millpond.conf")
    assert said.split() == written[2].split()


def test_doctor_looks_in_the_order_of_its_page():
    page = (DOCS / "doctor.md").read_text().partition("## What is looked at")[2]
    rows = re.findall(r"^\| ([a-z]+) \|", page.partition("\n## ")[0], re.M)
    assert rows == ["check", "configuration", *(each.name for each in CHECKS)]
