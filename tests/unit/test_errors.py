"""Every error is one sentence with a hint, and its status is documented."""

import ast
import re
from dataclasses import fields
from pathlib import Path

import pytest

from millpond import errors
from millpond.errors import BadConfiguration, BadOption, MillpondError, Tool
from millpond.nova.advice import reword_for_nova

DOCS = Path(__file__).parents[2] / "docs" / "errors.md"


def concrete(kind=MillpondError):
    for each in kind.__subclasses__():
        yield from concrete(each)
        if hasattr(each, "__dataclass_fields__"):
            yield each


def sample(kind):
    values = {}
    for field in fields(kind):
        values[field.name] = {
            "int": 7,
            int: 7,
            tuple[str, ...]: ("a", "b"),
            tuple[BadOption, ...]: (BadOption("[a] b", "is wrong", "say c"),),
        }.get(field.type, f"<{field.name}>")
    return kind(**values)


@pytest.mark.parametrize("kind", list(concrete()), ids=lambda kind: kind.__name__)
def test_it_says_its_facts_in_one_plain_sentence(kind):
    error = sample(kind)
    text = str(error)
    assert "{" not in text
    assert "{" not in error.advice
    assert not text.endswith(".")
    assert "\n" not in text
    if kind is not BadConfiguration:
        stated = text + error.advice
        assert all(
            str(getattr(error, field.name)) in stated or field.name in ("code", "matches", "users")
            for field in fields(kind)
            if isinstance(getattr(error, field.name), str)
        )


@pytest.mark.parametrize("kind", list(concrete()), ids=lambda kind: kind.__name__)
def test_it_has_a_hint(kind):
    assert sample(kind).advice, f"{kind.__name__} leaves people alone"


FAMILIES = {each.__name__ for each in MillpondError.__subclasses__()}


def test_what_is_raised_as_its_family_has_a_hint():
    source = Path(errors.__file__).parents[1]
    calls = [
        (path, each)
        for path in source.rglob("*.py")
        for each in ast.walk(ast.parse(path.read_text()))
        if isinstance(each, ast.Call) and getattr(each.func, "id", "") in FAMILIES
    ]
    assert calls
    assert [f"{path}:{each.lineno}" for path, each in calls if len(each.args) != 2] == []


def test_every_exit_status_is_documented():
    documented = set(map(int, re.findall(r"^\| (\d+) \|", DOCS.read_text(), re.M)))
    assert {each.exit_code for each in concrete()} | {1} <= documented


COMMAND = r"millpond (?:cache|config|doctor|explain|host|image|pool|server|transition)\b"


def test_under_nova_advice_names_the_programs_of_a_nova_host():
    for kind in concrete():
        said = reword_for_nova(sample(kind).advice)
        assert re.findall(COMMAND, said) in ([], ["millpond config"])  # which works there, too
    assert reword_for_nova(f"'{Tool.REPAIR}' ends it; '{Tool.SERVER} show a' says more") == (
        "'millpond-nova-doctor --repair' ends it; 'openstack server show a' says more"
    )


@pytest.mark.parametrize("tool", Tool)
def test_under_nova_there_is_a_program_for_every_tool(tool):
    assert reword_for_nova(tool)


def test_texts_below_the_command_name_tools_and_no_commands():
    source = Path(errors.__file__).parents[1]
    allowed = {source / "errors" / "tools.py", source / "nova" / "advice.py"}
    assert [
        f"{path.relative_to(source)}: {found}"
        for path in source.rglob("*.py")
        if path not in allowed and path.parent.name != "cli"
        for found in re.findall(rf"'{COMMAND}.*", path.read_text())
    ] == []


def test_there_is_one_place_for_errors():
    assert all(each.__module__.startswith(f"{errors.__name__}.") for each in concrete())
