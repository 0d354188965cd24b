"""The process that serves a stream: over real HTTP, read by QEMU, killed for real."""

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millpond.errors import CannotResume, FetchFailed, NotFound
from millpond.images.index import INDEX_CHUNK, make_index
from millpond.model.names import ImageId
from millpond.model.transfer import Digest, Patience
from millpond.system.http import Resource
from millpond.templates.streams import serve
from millpond.templates.streams.plan import StreamDirectory, StreamPlan
from tests.support.image_files import MiB
from tests.support.loopback import ADDRESS
from tests.support.web import Answer, Web, serving

PART = "part"
PATIENCE = Patience(connect_seconds=1, read_seconds=1, retries=0)


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("NO_PROXY", ADDRESS)
    with serving() as web:
        yield web


@pytest.fixture(scope="module")
def content() -> bytes:
    return os.urandom(4 * MiB) + bytes(2 * MiB) + os.urandom(MiB + 512)


def plan(directory: Path, web: Web, content: bytes, rate: int, linger: float = 60) -> None:
    """Publishing is a command that writes down that it was called."""
    index = make_index([content])
    url = web.offer("/image", content) if "/image" not in web.pages else web.url("/image")
    stated = StreamPlan(
        name="guest",
        image=ImageId("guest"),
        url=url,
        size=index.size,
        root=index.root,
        digest=Digest(algorithm="sha512", value=hashlib.sha512(content).hexdigest()),
        socket=directory / "socket",
        reader=0,
        fill_rate=rate,
        fill_delay=0,
        patience=PATIENCE,
        settle=("touch", str(directory.parent / "settled")),
        linger=linger,
    )
    StreamDirectory(directory).write(stated, index)


@contextmanager
def running(directory: Path) -> Iterator[subprocess.Popen[str]]:
    (directory / "socket").unlink(missing_ok=True)
    words = [sys.executable, "-m", serve.__name__, str(directory)]
    process = subprocess.Popen(words, text=True, stderr=subprocess.PIPE)
    try:
        until = time.monotonic() + 60
        while not (directory / "socket").exists() and process.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.communicate()


def qemu_reads(directory: Path, content: bytes) -> None:
    (whole := directory / "whole").write_bytes(content)
    url = f"nbd+unix:///?socket={directory / 'socket'}"
    words = ["qemu-img", "compare", "-f", "raw", "-F", "raw", url, str(whole)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def wait_for(directory: Path, content: bytes) -> None:
    until = time.monotonic() + 60
    while (directory / PART).read_bytes() != content:
        assert time.monotonic() < until
        time.sleep(0.1)


def test_the_process_fills_the_file_while_qemu_reads(
    tmp_path: Path, web: Web, content: bytes
) -> None:
    plan(tmp_path, web, content, 0)
    with running(tmp_path) as process:
        qemu_reads(tmp_path, content)
        wait_for(tmp_path, content)
        process.terminate()
        assert process.wait(30) == 0
    assert web.sent["/image"] == len(content) - 2 * MiB  # each once, zeros never


def test_killed_it_goes_on_where_the_map_says(tmp_path: Path, web: Web, content: bytes) -> None:
    """What is marked is not fetched again; what came since is, which is some seconds' at most."""
    plan(tmp_path, web, content, 4 * INDEX_CHUNK)
    zeros, marked = 2 * MiB // INDEX_CHUNK, 0
    with running(tmp_path) as process:
        while marked < zeros + 4:
            time.sleep(0.1)
            assert process.poll() is None
            marked = marks(tmp_path)
        process.kill()
        process.wait()
    kept, sent = marks(tmp_path) - zeros, web.sent["/image"]
    plan(tmp_path, web, content, 0)
    with running(tmp_path):
        wait_for(tmp_path, content)
        qemu_reads(tmp_path, content)
    again = web.sent["/image"] - (len(content) - 2 * MiB)
    assert again <= sent - kept * INDEX_CHUNK


def marks(directory: Path) -> int:
    path = directory / f"{PART}.map"
    return path.read_bytes()[32:].count(1) if path.exists() else 0


def test_a_second_process_of_a_directory_ends_at_once(
    tmp_path: Path, web: Web, content: bytes
) -> None:
    plan(tmp_path, web, content, INDEX_CHUNK)
    with running(tmp_path):
        words = [sys.executable, "-m", serve.__name__, str(tmp_path)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert "another process serves it" in done.stderr
        qemu_reads(tmp_path, content)


def test_a_list_that_is_not_that_of_the_root_is_not_served(
    tmp_path: Path, web: Web, content: bytes
) -> None:
    plan(tmp_path, web, content, 0)
    (tmp_path / "index").write_bytes(make_index([content[::-1]]).digests)
    with running(tmp_path) as process:
        assert process.wait(30) != 0
        assert process.stderr
        assert "not the list that the root is of" in process.stderr.read()
    assert not (tmp_path / "socket").exists()
    assert web.seen == []


def test_it_ends_once_it_is_not_wanted_any_more(tmp_path: Path, web: Web, content: bytes) -> None:
    plan(tmp_path, web, content, INDEX_CHUNK)
    with running(tmp_path) as process:
        assert StreamDirectory(tmp_path).is_served
        StreamDirectory(tmp_path).unwant()
        assert process.wait(30) == 0
    assert not StreamDirectory(tmp_path).is_served


def test_what_is_published_and_read_by_nobody_is_tidied(
    tmp_path: Path, web: Web, content: bytes
) -> None:
    directory = tmp_path / "stream"
    directory.mkdir()
    plan(directory, web, content, 0, linger=1)
    with running(directory) as process:
        assert process.wait(60) == 0
    assert (tmp_path / "settled").exists()
    assert not directory.exists()


def test_it_says_what_it_waits_for_and_goes_on_by_itself(
    tmp_path: Path, web: Web, content: bytes
) -> None:
    directory = StreamDirectory(tmp_path)
    web.offer("/image", content, usual=Answer(status=503))
    plan(tmp_path, web, content, 0)
    with running(tmp_path):
        until = time.monotonic() + 60
        while "503" not in directory.status().waits_for:
            assert time.monotonic() < until
            time.sleep(0.1)
        assert directory.status().percent < 50
        web.offer("/image", content)
        wait_for(tmp_path, content)


# Parts of a resource


def test_a_part_is_what_was_asked_for(web: Web, content: bytes) -> None:
    resource = Resource(web.offer("/image", content), PATIENCE)
    assert resource.part(0, 512) == content[:512]
    assert resource.part(MiB, 3) == content[MiB : MiB + 3]
    assert [each.range for each in web.seen] == ["bytes=0-511", f"bytes={MiB}-{MiB + 2}"]


@pytest.mark.parametrize("offset", [0, MiB])
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer(ranges=False), CannotResume),
        (Answer(range_lie=True), CannotResume),
        (Answer(truncate=100), FetchFailed),
        (Answer(hang=100), FetchFailed),
        (Answer(status=404), NotFound),
        (Answer(status=503), FetchFailed),
    ],
)
def test_what_is_no_part_is_an_error(
    web: Web, content: bytes, offset: int, answer: Answer, error: type[Exception]
) -> None:
    resource = Resource(web.offer("/image", content, usual=answer), PATIENCE)
    with pytest.raises(error):
        resource.part(offset, 512)
