"""Nobody serves a stream for a while: the guests above it wait, and see no error."""

import libvirt
import pytest

from millpond.servers.streams import resume_waiting
from tests.support.guest_ticks import disks
from tests.support.reader import Reader, build_reader
from tests.support.streamed import streamed
from tests.support.waiting import wait_for

INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE
MIB = 1024 * 1024
STOPS = 'error_policy="stop" rerror_policy="stop"'


@pytest.fixture
def stream(millpond, workdir):
    with streamed(millpond, build_reader(workdir / "reader.raw", 64 * MIB)) as made:
        yield made


@pytest.fixture
def web(stream, connection):
    """It reads the stream all the time."""
    id = stream.create("web", stream.millpond.host().images.get("guest"))
    found = Reader(millpond=stream.millpond, id=id)
    wait_for(lambda: "." in found.said, 30)
    return found


def is_waiting(stream, name="web"):
    (found,) = [each for each in stream.millpond.json("server", "list") if each["name"] == name]
    return found["state"] == "paused" and found["waits_for"] == "image guest from stream"


def lose(stream):
    stream.end()
    wait_for(lambda: is_waiting(stream), 30)


def test_it_waits_and_goes_on(stream, web, connection):
    domain = connection.lookupByUUIDString(web.id)
    for flags in (0, INACTIVE):
        (disk,) = disks(domain, flags)
        assert STOPS in disk
    lose(stream)
    assert web.is_silent(1)
    assert "paused, waits for image guest from stream" in stream.millpond.ok(
        "server", "show", "web"
    )
    assert resume_waiting(stream.host()) == ["web"]
    assert is_waiting(stream)
    stream.serve()
    assert resume_waiting(stream.host()) == []
    web.wait()
    web.check()


@pytest.mark.full
def test_one_that_its_user_has_paused_stays_paused(stream, web):
    millpond = stream.millpond
    millpond.ok("server", "pause", "web")
    stream.end()
    stream.serve()
    assert resume_waiting(stream.host()) == []
    assert web.is_silent(1)
    millpond.ok("server", "unpause", "web")
    web.wait()
    lose(stream)
    code, message = millpond.fails("server", "pause", "web")
    assert (code, "it waits for image guest from stream" in message) == (4, True)
    code, message = millpond.fails("server", "unpause", "web")
    assert (code, "is paused: it waits" in message) == (6, True)
    stream.serve()
    millpond.ok("server", "start", "web")
    web.wait()
    web.check()


@pytest.mark.full
def test_doctor_says_what_it_waits_for_and_resumes_it(stream, web):
    millpond = stream.millpond
    lose(stream)
    said = millpond.run("doctor").stdout
    assert "server 'web' is paused: it waits for image guest from stream" in said
    said = millpond.run("doctor", "--repair").stdout
    assert "server 'web' still waits for image guest from stream" in said
    stream.serve()
    assert "web goes on" in millpond.run("doctor", "--repair").stdout
    web.wait()
    web.check()


@pytest.mark.full
def test_its_template_arrived_while_it_waited(stream, web, connection):
    """What served it has ended."""
    lose(stream)
    stream.arrive()
    stream.millpond.ok("doctor", "--repair")
    web.wait()
    (defined,) = disks(connection.lookupByUUIDString(web.id), INACTIVE)
    assert "nbd" not in defined
    assert "error_policy" not in defined
    web.check()
