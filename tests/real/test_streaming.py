"""Servers that start before their image has arrived."""

import pytest

from millpond.model.sizes import MiB
from tests.support.streaming import streaming_host, with_tail


@pytest.fixture
def host(millpond):
    with streaming_host(millpond) as made:
        yield made


@pytest.fixture
def image(micro_guest, workdir):
    return with_tail(micro_guest.path, workdir / "guest.raw", 32 * MiB, zeros=8 * MiB)


def sent(host):
    return sum(each for path, each in host.web.sent.items() if not path.endswith(".index"))


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
    published = host.wait_until_published()
    name = published["template"]["volume"]
    assert (host.millpond.bases / name).read_bytes() == image.read_bytes()
    assert sent(host) <= 25 * MiB
