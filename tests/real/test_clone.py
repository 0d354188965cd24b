"""A new server with copies of all disks of another one."""

import re
import subprocess

import pytest

from millpond.records.journal import StepMoment
from millpond.servers.config_drive import read_drive
from tests.support import server_with_data
from tests.support.guest_ticks import chains, wait_for_ticks
from tests.support.killer import kill_at
from tests.support.server_with_data import PATTERN, read
from tests.support.waiting import wait_for


@pytest.fixture(params=["qcow2", "raw"])
def web(request, millpond, micro_guest, workdir):
    return server_with_data.make(millpond, micro_guest, workdir, request.param)


@pytest.mark.parametrize("state", ["running", "stopped"])
def test_a_clone_has_all_disks_and_is_a_server_of_its_own(
    millpond, web, workdir, connection, state
):
    if state == "stopped":
        millpond.ok("server", "stop", "web", "--force")
    before = chains(connection.lookupByName("web"))
    made = millpond.json("server", "clone", "web", "twin", "--network", "user")
    assert chains(connection.lookupByName("web")) == before
    source = millpond.server("web")
    assert made["id"] != web
    assert made["hardware"]["machine"] == source.hardware.machine
    assert made["hardware"]["vif_model"] == "e1000"
    assert [(each["role"], each["target"]) for each in made["disks"]] == [
        (each.role, each.target) for each in source.disks
    ]
    if state == "running":
        wait_for_ticks(millpond, web)
    millpond.ok("server", "delete", "web", "--yes")
    millpond.wait_for_console(made["id"], "BOOTS 0002")
    millpond.ok("server", "reboot", "twin", "--hard")
    millpond.wait_for_console(made["id"], "BOOTS 0003")
    millpond.ok("server", "stop", "twin", "--force")
    volumes = {each["role"]: millpond.disks / each["volume"] for each in made["disks"]}
    assert read(volumes["disk.data0"], workdir)[: len(PATTERN)] == PATTERN
    assert {each.name for each in millpond.disks.iterdir()} == {
        each.name for each in volumes.values()
    }
    assert list((millpond.state / "images" / "incoming").iterdir()) == []
    millpond.ok("server", "resize", "twin", "--disk", "4M")
    millpond.ok("doctor")


@pytest.fixture
def reachable(millpond, micro_guest, workdir):
    """With what only one server can have, and what its guest is told."""
    key = workdir / "key"
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "me@here", "-f", str(key)]
    subprocess.run(words, check=True)
    (workdir / "data").write_text("#cloud-config\n")
    options = ("--publish", "127.0.0.1:20022:22", "--ssh-key", f"{key}.pub")
    more = ("--user-data", workdir / "data", "--vnc", "5999", "--swap", "1M")
    return server_with_data.make(millpond, micro_guest, workdir, "qcow2", *options, *more)


def test_what_only_one_server_can_have_is_not_copied(millpond, reachable):
    text = millpond.ok("server", "clone", "web", "twin")
    assert "published ports (127.0.0.1:20022 -> 22/tcp)" in text
    assert "the VNC port (5999)" in text
    source, made = millpond.server("web"), millpond.server("twin")
    assert made.networks[0].mac != source.networks[0].mac
    assert made.networks[0].ports == ()
    assert made.devices.vnc.port == 0
    drives = [
        (millpond.disks / each.get_disk("disk.config").volume).read_bytes()
        for each in (source, made)
    ]
    told = [read_drive(each) for each in drives]
    assert told[0].keys == told[1].keys != ()
    assert told[0].user_data == told[1].user_data == b"#cloud-config\n"
    assert [each.hostname for each in told] == ["web", "twin"]
    assert made.id.encode() in drives[1]
    assert {each.role for each in made.disks} >= {"disk.swap", "disk.data0"}


@pytest.mark.parametrize("web", ["qcow2"], indirect=True)
def test_a_clone_that_cannot_be_is_refused_before_anything_is_copied(millpond, web):
    for code, sentence, words in (
        (3, "there is no server 'gone'", ("gone", "twin")),
        (4, "already a server named 'web'", ("web", "web")),
        (2, "cannot be the name of a server", ("web", "a/b")),
        (3, "no host", ("web", "twin", "--host", "nowhere")),
        (3, "there is no libvirt network 'none-such'", ("web", "twin", "--network", "none-such")),
        (4, "no guest agent", ("web", "twin", "--quiesce")),
    ):
        found, message = millpond.fails("server", "clone", *words)
        assert (found, sentence in message) == (code, True), message
    look_at_what_is_there(millpond)


def look_at_what_is_there(millpond):
    assert [each["name"] for each in millpond.json("server", "list")] == ["web"]
    assert len(list(millpond.disks.iterdir())) == 3
    assert list((millpond.state / "images" / "incoming").iterdir()) == []


@pytest.mark.parametrize("web", ["qcow2"], indirect=True)
@pytest.mark.parametrize(
    ("verb", "step"),
    [
        ("snapshot", "extract"),
        ("disk", "make"),
        pytest.param("snapshot", "freeze", marks=pytest.mark.full),
        pytest.param("create", "disks", marks=pytest.mark.full),
        pytest.param("create", "domain", marks=pytest.mark.full),
        pytest.param("create", "start", marks=pytest.mark.full),
    ],
)
def test_killed_anywhere_it_leaves_nothing(millpond, web, connection, verb, step):
    domain = connection.lookupByName("web")
    before = chains(domain)
    moment = StepMoment.BEGIN if step == "start" else StepMoment.END
    kill_at(millpond, verb, step, moment, "clone", "web", "twin")
    millpond.ok("doctor", "--repair")
    assert chains(domain) == before
    look_at_what_is_there(millpond)
    wait_for_ticks(millpond, web)


def printed(millpond, server):
    return millpond.ok("server", "console", server, "--log")


@pytest.mark.parametrize(
    "format", ["qcow2", pytest.param("raw", marks=pytest.mark.full)], ids=["qcow2", "raw"]
)
def test_a_clone_goes_to_another_host_whose_files_are_not_here(
    multi_host, micro_guest, workdir, format
):
    own = dict.fromkeys(("alder", "birch", "cedar"), f"images_type = {format}")
    multi_host.configure(own)
    multi_host.ok("image", "add", micro_guest.path, "--name", "guest")
    words = ("--image", "guest", "--memory", "16M", "--network", "none", "--host", "alder")
    multi_host.ok("server", "create", "web", *words)
    multi_host.ok("server", "disk", "add", "web", "--size", "4M")
    wait_for(lambda: "READY" in printed(multi_host, "web"), 60)
    before = multi_host.volumes("alder")
    made = multi_host.json("server", "clone", "web", "twin", "--host", "birch")
    multi_host.ok("server", "export", "web", workdir / "web.tar")
    words = ("--name", "again", "--host", "cedar")
    again = multi_host.json("server", "import", workdir / "web.tar", *words)
    assert multi_host.volumes("alder") == before
    for name, host in (("twin", "birch"), ("again", "cedar")):
        assert multi_host.where(name) == host
        wait_for(lambda name=name: "BOOTS 0002" in printed(multi_host, name), 60)
    assert {made["id"], again["id"]} < multi_host.taken_by()
    multi_host.ok("server", "stop", "twin", "--force")
    multi_host.ok("server", "resize", "twin", "--disk", "8M")
    multi_host.ok("server", "start", "twin")
    for name in ("twin", "again", "web"):
        multi_host.ok("server", "delete", name, "--yes")
    assert multi_host.taken_by() == set()
    assert [multi_host.volumes(each) for each in ("alder", "birch", "cedar")] == [[], [], []]


USER_DATA = """\
#cloud-config
runcmd:
  - echo "MACHINE $(cat /etc/machine-id)" > /dev/ttyS0
  - echo "HOST KEY $(cut -d ' ' -f 2 /etc/ssh/ssh_host_ed25519_key.pub)" > /dev/ttyS0
  - echo "USER DATA RAN ON $(hostname)" > /dev/ttyS0
"""


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_clone_of_a_cloud_server_is_a_new_machine_and_its_import_the_same(
    millpond, workdir, cloud_image
):
    """Cloud-init does all of its work again in a clone, and nothing in a server that is back."""
    (workdir / "data").write_text(USER_DATA)
    millpond.ok("image", "add", cloud_image, "--name", "debian")
    words = ("--memory", "512M", "--disk", "2G", "--user-data", workdir / "data")
    web = millpond.json("server", "create", "web", "--image", "debian", *words)
    said = [told_by(millpond, web["id"], "web")]
    twin = millpond.json("server", "clone", "web", "twin")
    said.append(told_by(millpond, twin["id"], "twin"))
    assert not set(said[0].values()) & set(said[1].values())
    millpond.ok("server", "delete", "twin", "--yes")
    millpond.ok("server", "export", "web", workdir / "web.tar")
    millpond.ok("server", "delete", "web", "--yes")
    back = millpond.json("server", "import", workdir / "web.tar")
    assert back["id"] == web["id"]
    console = millpond.wait_for_console(web["id"], "login:", 600)
    assert "USER DATA RAN" not in console


def told_by(millpond, id, hostname):
    console = millpond.wait_for_console(id, f"USER DATA RAN ON {hostname}", 600)
    found = dict(re.findall(r"(MACHINE|HOST KEY) (\S+)", console))
    assert found.keys() == {"MACHINE", "HOST KEY"}
    return found
