"""Ways into a guest: ports of the host that lead to it, and ssh."""

import re
import socket
import subprocess

import pytest

from tests.real.test_addresses import BOOTED, address_in, create, fetch, linux  # noqa: F401
from tests.support.refusals import world
from tests.support.waiting import wait_for

PUBLISHED = ("--publish", "18080:80", "--publish", "12222:22")
WORDS = ("--image", "guest", "--memory", "16M")


@pytest.fixture
def guest(networked, micro_guest):
    networked.ok("image", "add", micro_guest.path, "--name", "guest")
    networked.make_pools()
    return networked


@pytest.mark.timeout(900)
def test_a_published_port_leads_into_the_guest(linux):  # noqa: F811
    made = create(linux, "web", "user", options=PUBLISHED)
    assert address_in(linux, made) == "10.0.2.15"
    assert fetch(linux, "http://127.0.0.1:18080/marker") == "millpond-linux"
    listening = linux.libvirtd.run("cat", "/proc/net/tcp").stdout
    assert re.search(r"0100007F:46A0 00000000:0000 0A", listening)  # 127.0.0.1 alone
    assert "127.0.0.1:18080 -> 80/tcp" in linux.ok("server", "list")
    assert "127.0.0.1:18080 -> 80/tcp" in linux.ok("server", "show", "web")
    mac = made["networks"][0]["mac"]
    code, message = linux.fails("server", "nic", "remove", "web", mac)
    assert (code, "stop it first" in message) == (5, True)
    # The guest has no ssh server: that port is open, and nobody answers there.
    done = linux.run_there("server", "ssh", "web", "--user", "root", "--wait", "2", "--", "true")
    assert done.returncode == 255
    linux.ok("server", "reboot", "web", "--hard")
    linux.wait_for_console(made["id"], "BOOTS: 2", 240)
    wait_for(lambda: linux.console(made["id"]).count("ADDRESS: eth0") == 2, BOOTED)
    assert fetch(linux, "http://127.0.0.1:18080/marker") == "millpond-linux"
    linux.ok("server", "stop", "web", "--force")
    linux.ok("server", "nic", "remove", "web", mac)
    assert linux.server("web").networks == ()
    with linux.libvirtd.connect() as connection:
        assert "hostfwd" not in connection.lookupByName("web").XMLDesc()


@pytest.mark.parametrize(
    "properties", [(), ("hw_machine_type=q35", "hw_vif_model=e1000")], ids=["pc", "q35"]
)
def test_every_machine_takes_a_published_nic(guest, micro_guest, properties):
    options = [word for each in properties for word in ("--property", each)]
    guest.ok("image", "add", micro_guest.path, "--name", "other", *options)
    words = ("server", "create", "web", "--image", "other", "--memory", "16M")
    made = guest.json(*words, "--publish", "18081:80")
    assert made["state"] == "running"
    guest.wait_for_console(made["id"], micro_guest.marker)
    guest.ok("server", "disk", "add", "web", "--size", "4M")  # finds its place on the bus


def test_a_port_that_is_taken_is_refused_before_anything_is_made(guest):
    with guest.libvirtd.connect() as connection, socket.socket() as other:
        guest.ok("server", "create", "first", *WORDS, "--no-start", "--publish", "18082:22")
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        before = world(guest, connection)
        for published, sentence in (
            (f"{port}:22", f"port {port} of 127.0.0.1 is in use on this host"),
            (f"0.0.0.0:{port}:22", f"port {port} of 0.0.0.0 is in use on this host"),
            ("0.0.0.0:18082:80", "port 18082 of the host is server 'first''s"),
            ("18083", "'18083' says no ports"),
        ):
            words = ("server", "create", "web", *WORDS, "--publish", published)
            code, message = guest.fails(*words)
            assert (code, sentence in message, "hint:" in message) == (2, True, True), message
        assert world(guest, connection) == before


def test_a_server_whose_port_was_taken_meanwhile_is_not_started(guest):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
    guest.ok("server", "create", "web", *WORDS, "--publish", f"{port}:22")
    guest.ok("server", "reboot", "web", "--hard")  # its own port is in nobody's way
    guest.ok("server", "stop", "web", "--force")
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        code, message = guest.fails("server", "start", "web")
        sentence = f"port {port} of 127.0.0.1, which server 'web' publishes, is in use"
        assert (code, sentence in message) == (4, True), message
    guest.ok("server", "start", "web")


def test_ssh_says_why_there_is_no_way_in(guest):
    guest.define_network("net1", "192.168.150.0/24")
    guest.ok("server", "create", "off", *WORDS, "--no-start")
    guest.ok("server", "create", "inside", *WORDS)
    guest.ok("server", "create", "booting", *WORDS, "--network", "net1")
    for name, status, sentence in (
        ("off", 4, "server 'off' is stopped"),
        ("inside", 3, "create it with --publish 2222:22"),
        ("booting", 3, "its guest may still be booting: --wait 120"),
        ("nosuch", 3, "there is no server 'nosuch'"),
    ):
        code, message = guest.fails("server", "ssh", name)
        assert (code, sentence in message) == (status, True), message
    code, message = guest.fails("server", "ssh", "booting", "--user", "a b")
    assert (code, "'a b' is no user's name" in message) == (2, True)


@pytest.mark.timeout(1800)
@pytest.mark.full
def test_ssh_runs_a_command_in_a_cloud_image(networked, workdir, cloud_image):
    key = workdir / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    networked.ok("image", "add", cloud_image, "--name", "debian-12")
    networked.define_network("net1", "192.168.150.0/24")
    words = ("--image", "debian-12", "--memory", "512M", "--network", "net1,ip=192.168.150.5")
    made = networked.json("server", "create", "web", *words, "--ssh-key", f"{key}.pub")
    ssh = ("server", "ssh", "web", "-i", key)
    done = networked.run_there(*ssh, "--wait", "1200", "--", "hostname", seconds=1500)
    assert (done.returncode, done.stdout) == (0, "web\n"), done.stderr
    known = (networked.state / "known_hosts").read_text()
    assert made["id"] in known
    assert "192.168.150.5" not in known
