"""What can be done to a server that is in rescue, or whose resize is neither confirmed nor
reverted: each verb works, or is refused before it changes anything."""

import pytest

from tests.real.test_migrate import check_only_on, contents
from tests.support.refusals import world
from tests.support.waiting import wait_for

WORKS = "works"
TABLE = {
    # What is done: rescued, resized
    "server stop web --force": (WORKS, WORKS),
    "server rename web www": (WORKS, WORKS),
    "server rename www web": (WORKS, WORKS),
    "server set web --description unsettled": (WORKS, WORKS),
    "server disk add web --size 1M": (WORKS, WORKS),
    "server disk detach web disk.data0": (WORKS, WORKS),
    "server disk remove web disk.data0": (WORKS, WORKS),
    "server disk grow web disk --size 4M": (WORKS, WORKS),
    "server disk grow web {other} --size 8M": ("in rescue", "neither confirmed nor reverted"),
    "server disk detach web {other}": ("in rescue", "neither confirmed nor reverted"),
    "server disk attach web {other}": ("in rescue", "neither confirmed nor reverted"),
    "server disk remove web {other}": ("in rescue", "neither confirmed nor reverted"),
    "server resize web --vcpus 2 --disk 6M": (WORKS, WORKS),
    "server resize web --vcpus 3 --revertable": ("in rescue", "neither confirmed nor reverted"),
    "server rescue web": ("in rescue", "neither confirmed nor reverted"),
    "server rebuild web": ("in rescue", "neither confirmed nor reverted"),
    "server snapshot web copy": ("in rescue", "neither confirmed nor reverted"),
    "server snapshot web copy --all-disks": ("in rescue", "neither confirmed nor reverted"),
    "server clone web twin --no-start": ("in rescue", "neither confirmed nor reverted"),
    "server export web {directory}/web.tar": ("in rescue", "neither confirmed nor reverted"),
    "server start web": (WORKS, WORKS),
    "server reboot web --hard": (WORKS, WORKS),
    "server delete web": (WORKS, WORKS),
}


@pytest.fixture(params=["rescued", "resized"])
def unsettled(request, millpond, micro_guest):
    """The disk that it has for a while, and its column of the table."""
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    words = ("--image", "guest", "--memory", "32M", "--disk", "2M", "--network", "none")
    millpond.ok("server", "create", "web", *words, "--no-start")
    if request.param == "rescued":
        millpond.ok("server", "rescue", "web")
        return "disk.rescue", 0
    millpond.ok("server", "resize", "web", "--disk", "3M", "--revertable")
    return "disk.saved", 1


def test_each_verb_works_or_is_refused(millpond, connection, unsettled):
    other, column = unsettled
    kept = millpond.server("web").get_disk(other)
    for words, said in TABLE.items():
        asked = words.format(other=other, directory=millpond.directory).split()
        if said[column] == WORKS:
            if words == "server delete web":
                assert "no problem" in millpond.ok("doctor")
            millpond.ok(*asked)
            continue
        before = world(millpond, connection), millpond.server("web")
        code, message = millpond.fails(*asked)
        assert (code, said[column] in message, "hint: " in message) == (4, True, True), message
        assert (world(millpond, connection), millpond.server("web")) == before, words
        assert millpond.server("web").get_disk(other) == kept
    assert list(millpond.disks.iterdir()) == []
    assert not (millpond.directory / "web.tar").exists()


def test_it_moves_with_what_is_kept_and_is_reverted_there(multi_host, micro_guest):
    multi_host.configure(rest="images_type = raw")
    multi_host.ok("image", "add", micro_guest.path, "--name", "guest")
    words = ("--image", "guest", "--memory", "32M", "--network", "none", "--no-start")
    multi_host.ok("server", "create", "web", *words, "--disk", "2M", "--host", "alder")
    before = contents(multi_host, "web")["disk"]
    multi_host.ok("server", "resize", "web", "--disk", "4M", "--revertable")
    multi_host.ok("server", "start", "web")
    wait_for(lambda: contents(multi_host, "web")["disk"] != before, 30)  # it counts its boots
    multi_host.ok("server", "stop", "web", "--force")
    kept = contents(multi_host, "web")
    multi_host.ok("server", "migrate", "web", "--host", "birch")
    assert contents(multi_host, "web") == kept
    multi_host.ok("server", "resize", "web", "--revert")
    assert contents(multi_host, "web")["disk"] == before
    check_only_on(multi_host, "web", "birch")
