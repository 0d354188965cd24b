"""Commands on the page for people who come from elsewhere are commands that there are."""

import re
from pathlib import Path

from tests.unit.test_json_option import leaves

PAGE = Path(__file__).parents[2] / "docs" / "coming-from.md"


def test_every_command_on_the_page_exists_with_its_options():
    known = dict(leaves())
    found = re.findall(r"`millpond ([^`]+)`", PAGE.read_text())
    assert len(found) > 50
    for each in found:
        words = each.split(" -- ")[0].split()
        named = [" ".join(words[:length]) for length in (3, 2, 1)]
        command = next((known[name] for name in named if name in known), None)
        assert command, each
        options = {name for option in command.params for name in option.opts}
        options |= {name for option in command.params for name in option.secondary_opts}
        assert {word for word in words if word.startswith("--")} <= options, each


def test_what_is_missing_says_so():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    for what in ("another host", "maintenance"):
        assert any(what in row and "*Not yet*" in row for row in rows), what
