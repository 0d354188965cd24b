"""Servers that start before their image has arrived."""

import os
import random
import signal
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest

from millpond.errors import ImageRefused
from millpond.model.sizes import MiB
from millpond.records.journal import StepMoment
from millpond.templates.handler import HandlerContext
from millpond.templates.streams.streaming import StreamingTemplateImagehandler
from tests.support.killer import kill_at
from tests.support.streaming import streaming_host, with_tail
from tests.support.waiting import wait_for
from tests.support.web import Answer

SIZE = 32 * MiB
ZEROS = 8 * MiB


@pytest.fixture
def host(millpond):
    with streaming_host(millpond) as made:
        yield made


@pytest.fixture
def image(micro_guest, workdir):
    return with_tail(micro_guest.path, workdir / "guest.raw", SIZE, zeros=ZEROS)


def sent(host):
    return sum(each for path, each in host.web.sent.items() if not path.endswith(".index"))


def check_published(host, image):
    """It is an ordinary template, with the image's bytes."""
    found = host.wait_until_published()["template"]
    path = host.millpond.bases / found["volume"]
    assert path.read_bytes() == image.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o444
    assert found["digest"] == found["image_digest"]


def kill(stream):
    """As the machine would, or whoever is short of memory."""
    for pid in pids(stream):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not stream.is_served, 10)


def pids(stream):
    found = []
    for each in os.listdir("/proc"):
        try:
            words = Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if each.isdigit() and str(stream.path).encode() in words:
            found.append(int(each))
    return found


# The way of an image


def test_a_server_speaks_before_its_image_has_arrived_and_leaves_the_stream_then(host, image):
    host.configure(rate="4M", delay=5)
    host.add(image)
    id = host.create()
    host.millpond.wait_for_console(id, "READY")
    assert sent(host) <= MiB
    found = host.template()
    assert found["template"]["link"]["nbd"]
    assert found["stream"]["percent"] < 50
    assert 23 * MiB <= found["space"] <= 24 * MiB  # zeros are not fetched, and take nothing
    assert "filling" in host.millpond.ok("cache", "list")
    host.millpond.ok("cache", "prune", "--all-unused")
    check_published(host, image)
    assert sent(host) <= SIZE - ZEROS
    host.create("other")


@pytest.mark.full
def test_a_compressed_qcow2_streams_too(host, micro_guest, workdir):
    whole = with_tail(micro_guest.path, workdir / "guest.raw", SIZE, zeros=ZEROS)
    image = workdir / "packed.qcow2"
    words = ["qemu-img", "convert", "-c", "-f", "raw", "-O", "qcow2"]
    subprocess.run([*words, str(whole), str(image)], check=True)
    host.configure(rate="4M", delay=5)
    host.add(image)
    id = host.create()
    host.millpond.wait_for_console(id, "READY")
    assert sent(host) <= 2 * MiB
    check_published(host, image)


@pytest.mark.full
def test_eight_servers_of_a_new_image_fetch_it_once(host, image):
    host.configure(rate="0", delay=3)
    host.add(image)
    threads = [threading.Thread(target=host.create, args=(f"web{n}",)) for n in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    servers = host.millpond.json("server", "list")
    assert len(servers) == 8
    for each in servers:
        host.millpond.wait_for_console(each["id"], "READY")
    check_published(host, image)
    assert sent(host) <= SIZE - ZEROS
    ranges = [each.range for each in host.web.seen if each.path == "/guest.raw"]
    assert ranges.count("bytes=0-262143") <= 2  # it is looked at once when it is added


def test_fetched_ahead_of_need_it_becomes_a_template_by_itself(host, image):
    host.add(image)
    host.millpond.ok("cache", "fetch", "guest")
    check_published(host, image)
    (name,) = [each.name for each in host.millpond.bases.iterdir()]
    assert host.millpond.json("cache", "settle", name)[0]["streams"] is None


# What is not streamed


@pytest.mark.parametrize(
    ("libvirt", "says"),
    [("images_type = raw", "whole copies"), ("images_type = default", "")],
)
def test_explain_says_which_way_an_image_takes_and_why(host, image, libvirt, says):
    host.configure(libvirt=libvirt)
    host.add(image)
    shown = host.millpond.ok("explain", "guest")
    assert (says or "streamed from http://") in shown
    assert ("downloaded" in shown) == bool(says)


def test_what_cannot_be_streamed_is_downloaded_and_says_why(host, image):
    host.configure(libvirt="images_type = raw")
    host.add(image)
    done = host.millpond.run("cache", "fetch", "guest")
    assert done.returncode == 0
    assert "image guest is downloaded, not streamed: its disks are whole copies" in done.stderr
    check_published(host, image)
    assert host.template()["template"]["prepared"] == "download"
    assert host.streams() == []


def test_what_was_received_whole_once_streams_the_next_time(host, image):
    """By the index that was made of it then, and by nobody's word."""
    host.configure(libvirt="images_type = raw")
    host.add(image)
    host.millpond.ok("cache", "fetch", "guest")
    (known,) = (host.sidecar / "indexes").iterdir()
    for each in (host.millpond.state / "images" / "indexes").iterdir():
        each.unlink()
    host.millpond.ok("cache", "prune", "--all-unused")
    host.configure(rate="1M", delay=60)
    host.millpond.ok("cache", "fetch", "guest")
    assert host.template()["template"]["link"]["nbd"]
    known.unlink()


def test_a_hostile_image_is_refused_before_anybody_reads_it(host, workdir):
    """One that QEMU would follow to a file of the host. What adds it refuses it as well: so this
    one is put in its place."""
    bad = workdir / "guest.qcow2"
    words = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", "/etc/passwd", "-F", "raw"]
    subprocess.run([*words, str(bad), "4M"], check=True)
    url = host.publish(bad)
    words = ("image", "add", url, "--stream", "--index-root", host.root)
    code, message = host.millpond.fails(*words)
    assert "backing file" in message
    assert code == ImageRefused.exit_code
    assert host.millpond.json("image", "list") == []


# Kills


def moments(verb):
    """Every step, just after it was written down and just after it was done."""
    nothing = HandlerContext(store=type("None", (), {"local": True})(), images=None, users=None)
    steps = getattr(StreamingTemplateImagehandler(nothing), verb)().step_names
    return [(step, moment) for step in steps for moment in StepMoment]


def each_moment(verb, quick):
    return pytest.mark.parametrize(
        ("step", "moment"),
        [e if e == quick else pytest.param(*e, marks=pytest.mark.full) for e in moments(verb)],
    )


@each_moment("streaming", ("serve", StepMoment.END))
def test_the_command_is_killed_while_it_begins_a_stream(host, image, step, moment):
    host.configure(rate="0", delay=2)
    host.add(image)
    kill_at(host.millpond, "stream", step, moment, "fetch", "guest")
    host.millpond.ok("doctor", "--repair")
    if (step, moment) == ("record", StepMoment.END):
        assert host.stream.is_served or not host.stream.is_wanted
    else:
        assert host.streams() == []
        assert host.millpond.json("cache", "list")["templates"] == []
    host.millpond.ok("cache", "fetch", "guest")
    check_published(host, image)


@each_moment("filling", ("publish", StepMoment.END))
def test_the_command_that_publishes_is_killed(host, image, step, moment):
    host.configure(rate="0", delay=0)
    host.add(image)
    host.millpond.ok("cache", "fetch", "guest")
    stream = host.stream
    kill_before_it_publishes(host, stream)
    name = host.template()["template"]["volume"]
    kill_at(host.millpond, "fill", step, moment, "publish", name)
    host.millpond.ok("cache", "settle", name)
    check_published(host, image)
    assert host.millpond.host().template_store.unfinished() == []


def kill_before_it_publishes(host, stream):
    """All chunks are here and marked, and nobody serves them."""
    while True:
        wait_for(lambda: stream.status().percent == 100, 30)
        kill(stream)
        if host.template()["template"]["link"]:
            return
        pytest.skip("it was published already")


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 11))]
)
def test_the_process_is_killed_and_what_it_had_is_kept(host, image, seed):
    """At most a tenth is fetched twice, however often; nobody has to do anything but to use it."""
    chance = random.Random(seed)
    host.configure(rate="8M", delay=0)
    host.add(image)
    host.millpond.ok("cache", "fetch", "guest")
    for _ in range(3):
        time.sleep(chance.uniform(0, 1.5))
        if not host.streams() or not host.template()["template"]["link"]:
            break
        kill(host.stream)
        assert "not served" in host.millpond.ok("cache", "list")
        host.millpond.ok("cache", "prune")
        assert host.stream.is_served
    check_published(host, image)
    assert sent(host) <= 1.3 * (SIZE - ZEROS)


def test_doctor_serves_again_what_nobody_serves(host, image):
    host.configure(rate="1M", delay=60)
    host.add(image)
    host.create()
    kill(host.stream)
    done = host.millpond.run("doctor")
    assert done.returncode
    assert "is still arriving, and nobody serves it" in done.stdout
    host.millpond.ok("doctor", "--repair")
    assert host.stream.is_served


# Sources


@pytest.mark.parametrize(
    "fault",
    [
        Answer(status=503),
        *(
            pytest.param(each, marks=pytest.mark.full)
            for each in (
                Answer(ranges=False),
                Answer(range_lie=True),
                Answer(truncate=1000),
                Answer(hang=1000),
                Answer(content=bytes(SIZE)),
            )
        ),
    ],
    ids=lambda each: repr(each)[:40],
)
def test_it_waits_for_a_source_that_fails_and_goes_on_by_itself(host, image, fault):
    host.configure(rate="8M", delay=1)
    host.add(image)
    host.millpond.ok("cache", "fetch", "guest")
    page = host.web.pages["/guest.raw"]
    good, page.usual = page.usual, fault
    wait_for(lambda: host.stream.status().waits_for, 60)
    assert "waits: " in host.millpond.ok("cache", "list")
    assert host.template()["template"]["link"]
    page.usual = good
    check_published(host, image)


# Secrets


def test_a_password_in_a_url_is_seen_by_nobody(host, image):
    host.configure(rate="1M", delay=60)
    url = host.publish(image).replace("http://", "http://reader:s3cret@")
    words = ("--stream", "--index-root", host.root, "--name", "guest")
    shown = host.millpond.ok("-vv", "image", "add", f"{url}?token=t0ken", *words)
    shown += host.millpond.ok("image", "list", "--json")
    host.millpond.ok("cache", "fetch", "guest")
    shown += host.millpond.ok("cache", "list", "--json") + host.millpond.ok("explain", "guest")
    for pid in pids(host.stream):
        shown += Path(f"/proc/{pid}/cmdline").read_text()
    shown += host.stream.log.read_text() if host.stream.log.exists() else ""
    for secret in ("s3cret", "t0ken"):
        assert secret not in shown
        for path in host.millpond.state.rglob("*"):
            if path.is_file() and path.stat().st_size < MiB:
                is_open = path.stat().st_mode & 0o007
                assert not (is_open and secret in path.read_text(errors="replace"))
    assert {each.authorization for each in host.web.seen if each.authorization}


def test_only_the_user_of_qemu_may_open_the_socket(host, image):
    host.configure(rate="1M", delay=60)
    host.add(image)
    host.millpond.ok("cache", "fetch", "guest")
    socket = host.stream.plan().socket
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o711


# Images that stay where they are


def test_an_image_that_was_not_received_is_shown_saved_and_removed(host, image, workdir):
    host.add(image)
    found = host.millpond.json("image", "show", "guest")
    assert (found["size"], found["virtual_size"]) == (SIZE, SIZE)
    assert found["location"] == host.web.url("/guest.raw")
    assert "Bytes at" in host.millpond.ok("image", "show", "guest")
    assert sent(host) <= MiB
    host.millpond.ok("image", "save", "guest", workdir / "saved.raw")
    assert (workdir / "saved.raw").read_bytes() == image.read_bytes()
    host.configure(rate="1M", delay=60)
    host.millpond.ok("cache", "fetch", "guest")
    stream = host.stream
    host.millpond.ok("image", "remove", "guest")
    assert not stream.is_served
    assert host.streams() == []
    assert not any((host.millpond.state / "images" / "indexes").iterdir())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("{file}", "--stream"), "only what is at a URL is streamed"),
        (("{url}", "--stream"), "whoever can change an index that is fetched"),
        (("{url}", "--stream", "--index", "{url}.index"), "whoever can change an index"),
        (("{url}", "--stream", "--index-root", "12"), "is not a SHA-256"),
        (("{url}", "--stream", "--index-root", "0" * 64), "the root of the index is"),
        (("{url}", "--index-root", "{root}"), "it is for --stream"),
        (("{url}", "--stream", "--index", "{file}"), "this is not an index"),
        (("{url}", "--stream", "--index", "/nowhere"), "cannot read /nowhere"),
        (("{url}x", "--stream", "--index-root", "{root}", "--index", "{url}.index"), "nothing at"),
        (
            ("{url}", "--stream", "--index-root", "{root}", "--disk-format", "vmdk"),
            "vmdk is converted",
        ),
        (
            ("{url}", "--stream", "--index-root", "{root}", "--digest", "sha256:" + "0" * 64),
            "the index is of an image whose SHA-512 is",
        ),
    ],
)
def test_bad_words_change_nothing(host, image, words, sentence):
    url = host.publish(image)
    given = [each.format(file=image, url=url, root=host.root) for each in words]
    if "--disk-format" not in given and given[0].endswith("x"):
        given += ["--disk-format", "raw"]
    _, message = host.millpond.fails("image", "add", *given, "--name", "guest")
    assert sentence in message
    assert host.millpond.json("image", "list") == []


@pytest.mark.parametrize("answer", [Answer(ranges=False), Answer(range_lie=True)])
def test_a_server_without_parts_is_found_out_when_the_image_is_added(host, image, answer):
    url = host.publish(image, usual=answer)
    words = ("image", "add", url, "--stream", "--index-root", host.root)
    assert "gives no parts of it" in host.millpond.fails(*words)[1]


def test_an_image_of_other_bytes_than_its_index_is_refused(host, image):
    url = host.publish(image)
    host.web.offer("/guest.raw", bytes(MiB) + image.read_bytes()[MiB:])
    words = ("image", "add", url, "--stream", "--index-root", host.root)
    assert "are not those of its index" in host.millpond.fails(*words)[1]


def test_a_stream_that_does_not_fit_into_the_cache_is_not_begun(host, image):
    host.configure(rate="0", delay=0, more="max_bytes = 10M")
    host.add(image)
    code, message = host.millpond.fails("cache", "fetch", "guest")
    assert (code, "does not fit" in message) == (6, True)
    assert host.streams() == []
