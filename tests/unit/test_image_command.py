"""millpond image …, as a person and as a script see it."""

import hashlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.image_files import KiB, MiB, converted, qemu_img, raw_file
from tests.support.loopback import ADDRESS
from tests.support.waiting import wait_for
from tests.support.web import Answer, Web, serving

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    config = tmp_path / "millpond.conf"
    config.write_text(f"[DEFAULT]\nstate_path = {tmp_path / 'state'}\n")
    program = "from millpond.cli.main import main; main()"
    return [sys.executable, "-c", program, "--config-file", str(config), "image"]


@pytest.fixture
def image(words: list[str]) -> Run:
    def run(*more: str | Path, **how: Any) -> subprocess.CompletedProcess[str]:
        called = [*words, *map(str, more)]
        return subprocess.run(called, capture_output=True, text=True, timeout=60, **how)

    return run


def test_an_image_is_added_listed_shown_saved_and_removed(image: Run, tmp_path: Path) -> None:
    source = converted(raw_file(tmp_path), "qcow2").rename(tmp_path / "debian-12.qcow2")

    added = image("add", source, "--property", "hw_disk_bus=scsi", "--json")
    found = json.loads(added.stdout)
    assert (found["name"], found["format"]) == ("debian-12", "qcow2")
    assert found["virtual_size"] == 4 * MiB
    assert found["properties"] == {"hw_disk_bus": "scsi"}
    assert found["servers"] == []

    (listed,) = json.loads(image("list", "--json").stdout)
    assert listed["id"] == found["id"]
    shown = image("show", found["id"][:8]).stdout
    assert re.search(r"^Disk +4 MiB \(4194304 bytes\)$", shown, re.MULTILINE)
    assert re.search(r"^Property hw_disk_bus +scsi$", shown, re.MULTILINE)
    assert image("save", "debian-12", tmp_path / "copy.qcow2").returncode == 0
    assert (tmp_path / "copy.qcow2").read_bytes() == source.read_bytes()
    assert image("remove", "debian-12").returncode == 0
    assert json.loads(image("list", "--json").stdout) == []


def test_a_pipe_gets_plain_lines_with_whole_ids(image: Run, tmp_path: Path) -> None:
    added = image("add", raw_file(tmp_path), "--name", "guest")
    assert added.stderr == ""

    heading, row = image("list", env=os.environ | {"COLUMNS": "20"}).stdout.splitlines()

    assert heading.split() == ["Name", "Format", "Size", "Disk", "Id"]
    assert re.fullmatch(r"guest +raw +4 MiB +4 MiB +[0-9a-f-]{36}", row)


def test_standard_input_can_be_added(image: Run, tmp_path: Path) -> None:
    with raw_file(tmp_path).open("rb") as file:
        added = image("add", "-", "--name", "guest", "--disk-format", "raw", stdin=file)

    assert added.returncode == 0
    assert "guest" in image("list").stdout


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("NO_PROXY", ADDRESS)
    with serving() as web:
        yield web


def test_a_url_can_be_added(image: Run, web: Web, tmp_path: Path) -> None:
    content = converted(raw_file(tmp_path), "qcow2").read_bytes()
    url = web.offer("/releases/debian-12.qcow2", content, Answer(truncate=KiB))
    stated = f"sha256:{hashlib.sha256(content).hexdigest()}"

    added = json.loads(image("add", url + "?key=1", "--digest", stated, "--json").stdout)

    assert (added["name"], added["format"]) == ("debian-12", "qcow2")
    assert added["digest"] == hashlib.sha512(content).hexdigest()


@pytest.mark.parametrize(
    ("path", "more", "code", "sentence", "hint"),
    [
        ("/gone.raw", (), 3, "there is nothing at http://", "check the address"),
        ("/busy.raw", (), 9, "its server answers 503 (Service Unavailable)", "[http]"),
        (
            "/disk.raw",
            ("--digest", f"sha256:{'0' * 64}"),
            5,
            "its sha256 is not",
            "fetch it again",
        ),
        ("/disk.raw", ("--digest", "12"), 2, "'12' is not an algorithm", "sha256:…"),
        ("/disk", (), 2, "the name 'disk' does not say which format", "--disk-format"),
        ("/", ("--disk-format", "raw"), 2, "'' cannot be the name", "letter"),
    ],
)
def test_a_url_that_gives_no_image_gets_one_sentence_and_a_hint(
    image: Run,
    web: Web,
    tmp_path: Path,
    path: str,
    more: tuple[str, ...],
    code: int,
    sentence: str,
    hint: str,
) -> None:
    with (tmp_path / "millpond.conf").open("a") as config:
        config.write("[http]\nretries = 1\n")
    web.offer("/disk.raw", raw_file(tmp_path).read_bytes())
    web.offer("/busy.raw", b"", usual=Answer(status=503))

    done = image("add", web.url(path).replace("http://", "http://me:hidden@"), *more)

    first, second = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (code, "")
    assert sentence in first
    assert hint in second
    assert "hidden" not in done.stderr
    assert not [each for each in (tmp_path / "state").rglob("*-*") if each.is_file()]


@pytest.mark.parametrize(
    ("switch", "changes", "reasons"),
    [([], False, False), (["-v"], True, False), (["-vv"], True, True)],
    ids=["silent", "-v", "-vv"],
)
def test_v_shows_what_changed_and_vv_also_why(
    words: list[str], web: Web, tmp_path: Path, switch: list[str], changes: bool, reasons: bool
) -> None:
    url = web.offer("/disk.raw", raw_file(tmp_path).read_bytes(), Answer(status=503))
    *program, verb = words
    called = [*program, *switch, verb, "add", url, "--name", "disk"]
    said = subprocess.run(called, capture_output=True, text=True, timeout=60, check=True).stderr
    assert ("added image disk" in said) is changes
    assert ("trying again: cannot fetch" in said) is reasons


def test_the_most_talkative_log_has_no_credentials(
    words: list[str], web: Web, tmp_path: Path
) -> None:
    url = web.offer("/disk.raw", raw_file(tmp_path).read_bytes(), Answer(status=503))
    address = url.replace("http://", "http://me:hidden@") + "?key=concealed"
    called = [*words[:-1], "-vvv", words[-1], "add", address]
    done = subprocess.run(called, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "trying again" in done.stderr
    assert not re.search("hidden|concealed", done.stderr)


def test_a_terminal_sees_progress(words: list[str], tmp_path: Path) -> None:
    terminal, end = pty.openpty()
    called = [*words, "add", str(raw_file(tmp_path)), "--name", "guest"]
    added = subprocess.run(
        called, stdout=subprocess.PIPE, stderr=end, timeout=60, env=os.environ | {"TERM": "xterm"}
    )
    os.close(end)
    shown = os.read(terminal, 100_000).decode()
    os.close(terminal)

    assert added.returncode == 0
    assert "adding guest" in shown
    assert "MiB" in shown
    assert b"adding" not in added.stdout


@pytest.mark.parametrize(
    ("more", "code", "sentence", "hint"),
    [
        (("add", "gone.qcow2"), 3, "cannot read gone.qcow2: No such file", "check the path"),
        (("add", "disk.img"), 2, "'disk.img' does not say which format", "--disk-format"),
        (("add", "disk.raw", "--disk-format", "vmdk"), 5, "declared as vmdk", "--disk-format raw"),
        (("add", "overlay.qcow2"), 5, "it has a backing file", "stands alone"),
        (("add", "disk.raw", "--name", "a/b"), 2, "cannot be the name of an image", "letter"),
        (("add", "disk.raw", "--property", "x"), 2, "'x' is not KEY=VALUE", "hw_disk_bus=virtio"),
        (("show", "gone"), 3, "there is no image 'gone'", "image list"),
        (("save", "gone", "file"), 3, "there is no image 'gone'", "image list"),
        (("remove", "gone"), 3, "there is no image 'gone'", "image list"),
    ],
)
def test_bad_input_gets_one_sentence_and_a_hint(
    image: Run, tmp_path: Path, more: tuple[str, ...], code: int, sentence: str, hint: str
) -> None:
    disk = raw_file(tmp_path)
    os.link(disk, tmp_path / "disk.raw")
    os.link(disk, tmp_path / "disk.img")
    overlay = tmp_path / "overlay.qcow2"
    qemu_img("create", "-u", "-f", "qcow2", "-F", "raw", "-b", "/etc/passwd", overlay, "1M")

    done = image(*more, cwd=tmp_path)

    first, second = done.stderr.splitlines()
    assert done.returncode == code
    assert sentence in first
    assert hint in second
    assert done.stdout == ""
    assert not list((tmp_path / "state").rglob("*.json"))


def test_one_unknown_image_among_others_removes_none(image: Run, tmp_path: Path) -> None:
    image("add", raw_file(tmp_path), "--name", "guest")

    assert image("remove", "guest", "gone").returncode == 3
    assert "guest" in image("list").stdout


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_ended_from_outside_it_leaves_nothing(
    words: list[str], tmp_path: Path, number: signal.Signals, status: int
) -> None:
    os.mkfifo(tmp_path / "slow.raw")
    process = subprocess.Popen([*words, "add", str(tmp_path / "slow.raw")])
    with open(tmp_path / "slow.raw", "wb", buffering=0) as source:
        source.write(bytes(65536))
        wait_for(lambda: list((tmp_path / "state/images/incoming").glob("*")), 20)
        process.send_signal(number)
        assert process.wait(20) == status
    assert not [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
