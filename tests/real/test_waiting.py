"""--wait: until the guest is up, and what is said if it does not come."""

import json
import signal
import threading

import pytest

from millpond.cli.entry import main
from tests.real.test_password import give
from tests.support import forked
from tests.support.forked import Interruption
from tests.support.millpond import COMMAND
from tests.support.terminal import open_terminal
from tests.support.waiting import wait_for

WORDS = ("--image", "guest", "--memory", "16M", "--wait")
ONCE = """\
#cloud-config
runcmd:
  - touch /etc/cloud/cloud-init.disabled
  - systemctl mask qemu-guest-agent
"""
"""At the next boot there is neither cloud-init nor an agent."""
FAILING = """\
#cloud-config
bootcmd:
{bootcmd}
runcmd:
  - "false"
"""
NO_AGENT = "  - systemctl mask --now qemu-guest-agent"
PASSWORD = "100% of: 'quoted' $HOME"


@pytest.fixture
def guest(millpond, micro_guest):
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    return millpond


def test_a_guest_that_does_not_come_up_is_told_of_and_stays(guest):
    done = guest.run("server", "create", "web", *WORDS, "--wait-timeout", "3", "--json")
    assert done.returncode == 10
    assert json.loads(done.stdout)["state"] == "running"
    said, hint = done.stderr.splitlines()
    assert said == (
        "millpond: the guest of server 'web' is not up: neither cloud-init nor its agent nor a "
        "login prompt was there within 3 s"
    )
    assert "'millpond server console web --log'" in hint
    assert "'millpond server start web --wait'" in hint
    code, message = guest.fails("server", "start", "web", "--wait", "--wait-timeout", "1")
    assert (code, "within 1 s" in message) == (10, True)
    assert guest.json("server", "show", "web")["state"] == "running"


def test_a_guest_that_powers_off_ends_the_wait(guest, connection):
    def power_off():
        wait_for(lambda: '"running"' in guest.run("server", "list", "--json").stdout, 30)
        connection.lookupByName("web").destroy()

    thread = threading.Thread(target=power_off)
    thread.start()
    done = guest.run("server", "create", "web", *WORDS)
    thread.join()
    assert (done.returncode, "it has powered itself off" in done.stderr) == (10, True)
    assert guest.json("server", "show", "web")["state"] == "stopped"


def test_waiting_needs_a_guest(guest):
    code, message = guest.fails("server", "create", "web", *WORDS, "--no-start")
    assert (code, "--wait: a server that is not started has no guest" in message) == (2, True)
    assert guest.json("server", "list") == []


def test_ctrl_c_leaves_the_server_running(guest):
    words = ["millpond", "--config-file", str(guest.config), "server", "create", "web", *WORDS]
    interruption = Interruption(seconds=8, signal=signal.SIGINT)
    done = forked.run(main, words, 60, interruption)
    assert (done.returncode, done.stderr) == (130, "millpond: server 'web' runs on\n")
    found = guest.json("server", "show", "web")
    assert (found["state"], found["should_run"], found["operation"]) == ("running", True, None)


def test_on_a_terminal_it_says_what_it_waits_for(guest):
    words = (COMMAND, "--config-file", guest.config, "server", "create", "web", *WORDS)
    with open_terminal(words) as terminal:
        terminal.wait_for("web: waits for its guest to boot (up to 600 s)")
        terminal.type("\x03")
        assert terminal.finish() == 130
    assert "server 'web' runs on" in terminal.shown


def tail_of_console(millpond, name):
    return millpond.console(millpond.server(name).id)[-3000:]


def log_in(millpond, name, user, password):
    """On its serial console, as a person does."""
    words = (COMMAND, "--config-file", millpond.config, "server", "console", name)
    with open_terminal(words) as terminal:
        terminal.wait_for("leave with Ctrl-]")
        terminal.wait_for(f"{name} login: ", typing="\r")
        terminal.type(f"{user}\r")
        terminal.wait_for("Password: ")
        terminal.type(f"{password}\r")
        terminal.wait_for("~# ", 60)
        terminal.type("echo IT IS $(id -un)\r")
        terminal.wait_for(f"IT IS {user}")
        terminal.type("exit\r")
        terminal.type("\x1d")
        assert terminal.finish() == 0


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_cloud_image_is_waited_for_and_given_a_password(millpond, workdir, cloud_image):
    (workdir / "data").write_text(ONCE)
    millpond.ok("image", "add", cloud_image, "--name", "debian")
    words = ("--image", "debian", "--memory", "512M", "--disk", "2G", "--wait")
    command = ("server", "create", "web", *words, "--user-data", workdir / "data", "--json")
    done = millpond.run(*command, seconds=600)
    assert done.returncode == 0, done.stderr + tail_of_console(millpond, "web")
    assert done.stderr == ""
    made = json.loads(done.stdout)
    assert "Cloud-init v. " in millpond.console(made["id"])
    assert " finished at " in millpond.console(made["id"])

    assert give(millpond, PASSWORD.encode(), "server", "password", "web")[0] == 0
    log_in(millpond, "web", "root", PASSWORD)
    code, message = give(millpond, b"secret", "server", "password", "web", "--user", "eve")
    assert (code, "has no user 'eve'" in message, "root, debian" in message) == (3, True, True)

    millpond.ok("server", "stop", "web", "--timeout", "90")
    before = len(millpond.console(made["id"]))
    done = millpond.run("server", "start", "web", "--wait", seconds=600)
    assert (done.returncode, done.stdout.split()[0]) == (0, "started"), done.stderr
    printed = millpond.console(made["id"])[before:]
    assert "web login: " in printed
    assert " finished at " not in printed
    code, message = give(millpond, b"secret", "server", "password", "web")
    assert (code, "does not answer" in message) == (10, True)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("bootcmd", "said"),
    [
        ("  - echo", "('scripts-user', RuntimeError('Runparts: 1 failures"),
        (NO_AGENT, "module scripts-user failed"),
    ],
    ids=["agent", "console"],
)
def test_errors_of_cloud_init_have_a_status(millpond, workdir, cloud_image, bootcmd, said):
    (workdir / "data").write_text(FAILING.format(bootcmd=bootcmd))
    millpond.ok("image", "add", cloud_image, "--name", "debian")
    words = ("--image", "debian", "--memory", "512M", "--disk", "2G", "--wait")
    command = ("server", "create", "web", *words, "--user-data", workdir / "data", "--json")
    done = millpond.run(*command, seconds=600)
    assert done.returncode == 10
    assert "the guest of server 'web' is up, and cloud-init reports: " in done.stderr
    assert said in done.stderr
    assert json.loads(done.stdout)["state"] == "running"
