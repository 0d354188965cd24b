"""Words of strangers on a terminal: names of images in Glance, and all that quotes them."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.doctor import report
from millpond.doctor.finding import problem
from tests.support.glance_pages import ID, offer_description, offer_versions
from tests.support.loopback import ADDRESS
from tests.support.web import Web, serving

HOSTILE = "\x1b]0;title\x07\x1b[2Jguest\r\x9b31m\u202egpj.\x7f\n"
SPELT = "\\x1b]0;title\\x07\\x1b[2Jguest\\r\\x9b31m\\u202egpj.\\x7f\\n"


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("NO_PROXY", ADDRESS)
    with serving() as web:
        offer_versions(web)
        yield web


@pytest.fixture
def config(web: Web, tmp_path: Path) -> Path:
    """A Glance with one image, whose name and property are somebody's attempt."""
    offer_description(web, b"x" * 512, name=HOSTILE, mine=HOSTILE)
    answer = json.loads(web.pages[f"/v2/images/{ID}"].content)
    odd = answer | {"id": ID[:-1] + "0", "disk_format": HOSTILE}
    web.offer("/v2/images", json.dumps({"images": [answer, odd]}).encode())
    web.offer(f"/v2/images/{odd['id']}", json.dumps(odd).encode())
    (tmp_path / "state").mkdir()
    path = tmp_path / "millpond.conf"
    path.write_text(
        f"[DEFAULT]\nstate_path = {tmp_path / 'state'}\nimage_source = glance\n"
        f"[glance]\nauth_type = none\nendpoint_override = {web.url('')}\n"
    )
    return path


def shown(config: Path, *words: str, on_terminal: bool = False) -> str:
    """All that the command says, on both ways."""
    program = "from millpond.cli.main import main; main()"
    called = [sys.executable, "-c", program, "--config-file", str(config), *words]
    env = os.environ | {"COLUMNS": "300", "TERM": "xterm"}
    if not on_terminal:
        done = subprocess.run(called, capture_output=True, timeout=60, env=env)
        return (done.stdout + done.stderr).decode()
    ours, theirs = pty.openpty()
    process = subprocess.Popen(called, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    found = b""
    try:
        while piece := os.read(ours, 65536):
            found += piece
    except OSError:  # what a pseudo-terminal says when its other side is closed
        pass
    os.close(ours)
    process.wait(60)
    return found.decode()


@pytest.mark.parametrize(
    ("words", "on_terminal"),
    [
        (("image", "list"), True),
        (("image", "show", ID), True),
        (("image", "show", ID[:-1] + "0"), True),  # refused, and its name is quoted
        (("-vv", "image", "list"), False),  # the log says what was left out
        (("explain", ID), False),
    ],
    ids=["table", "details", "error", "log", "pipe"],
)
def test_names_from_elsewhere_cannot_command_a_terminal(
    config: Path, words: tuple[str, ...], on_terminal: bool
) -> None:
    text = shown(config, *words, on_terminal=on_terminal)
    assert SPELT in text
    for command in ("\x1b]0", "\x1b[2J", "\x07", "\x9b", "\u202e", "\x7f"):
        assert command not in text


def test_json_says_them_as_they_are(config: Path) -> None:
    text = shown(config, "image", "list", "--json")
    assert text.replace("\n", "").isprintable()
    assert [each["name"] for each in json.loads(text)] == [HOSTILE]


def test_the_doctor_spells_them_out(capsys: pytest.CaptureFixture[str]) -> None:
    report.tell([problem(f"image {HOSTILE} is wrong", HOSTILE)], as_json=False)
    text = capsys.readouterr().out
    assert r"\x1b[2Jguest\r\x9b31m" in text
    assert text.count(r"\x9b31m") == 2
    assert "\x1b" not in text
