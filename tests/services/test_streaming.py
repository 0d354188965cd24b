"""Images of a real Glance that servers begin to use before they have arrived."""

from pathlib import Path

import pytest

from millpond.model.sizes import MiB
from tests.services.test_upload import _no_images_stay, _no_proxy
from tests.support.guests import MicroGuest
from tests.support.millpond import Millpond
from tests.support.openstack.glance import Glance
from tests.support.streaming import CONFIGURATION, StreamingHost, with_tail
from tests.support.web import Web

__all__ = ["_no_images_stay", "_no_proxy"]


@pytest.fixture
def host(glance: Glance, millpond: Millpond, micro_guest: MicroGuest, workdir: Path):
    glance.upload(with_tail(micro_guest.path, workdir / "guest", 16 * MiB), "raw")
    made = StreamingHost(millpond=millpond, web=Web())
    yield made
    made.end()


def configure(host: StreamingHost, glance: Glance, delay: int, *, trust: bool) -> None:
    default = CONFIGURATION.format(
        sockets=host.millpond.directory / "run",
        rate="4M",
        delay=delay,
        more=f"trust_source = {trust}",
    )
    host.millpond.configure(
        f"images_type = qcow2\n[glance]\nauth_type = none\nendpoint_override = {glance.url}\n",
        default=f"image_source = glance\n{default}",
    )


def test_a_server_speaks_before_its_image_has_left_glance(
    host: StreamingHost, glance: Glance, workdir: Path
) -> None:
    configure(host, glance, 5, trust=True)
    host.millpond.ok("image", "publish-index", "guest")
    assert "streamed from image" in host.millpond.ok("explain", "guest")
    id = host.create()
    host.millpond.wait_for_console(id, "READY")
    found = host.template()
    assert found["template"]["link"]["location"].endswith("of Glance")
    assert found["stream"]["percent"] < 50
    name = host.wait_until_published()["template"]["volume"]
    assert (host.millpond.bases / name).read_bytes() == (workdir / "guest").read_bytes()


def test_an_index_that_its_owner_may_have_set_is_not_believed(
    host: StreamingHost, glance: Glance
) -> None:
    """What was made here of the same bytes is: next time, it streams."""
    configure(host, glance, 60, trust=False)
    host.millpond.ok("image", "publish-index", "guest")
    assert "trust_source is off" in host.millpond.ok("explain", "guest")
    done = host.millpond.run("cache", "fetch", "guest")
    assert "downloaded, not streamed: its index is believed by nobody" in done.stderr
    assert host.template()["template"]["prepared"] == "download"
    host.millpond.ok("cache", "prune", "--all-unused")
    host.millpond.ok("cache", "fetch", "guest")
    assert host.template()["stream"]["served"]


def test_glance_may_be_away_for_a_while(host: StreamingHost, glance: Glance) -> None:
    configure(host, glance, 3, trust=True)
    host.millpond.ok("image", "publish-index", "guest")
    host.millpond.ok("cache", "fetch", "guest")
    glance.rule(download_image="!")
    try:
        for _ in range(100):
            if waits := host.template()["stream"]["waits_for"]:
                break
        assert "403" in waits
    finally:
        glance.rule(download_image="@")
    host.wait_until_published()
