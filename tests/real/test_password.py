"""server password: where it is read, and why it is not set. Set it is in test_waiting.py."""

import subprocess

import libvirt
import pytest

from tests.support.millpond import COMMAND
from tests.support.terminal import open_terminal

SECRET = "not-to-be-seen"
AGENT = "org.qemu.guest_agent.0"


def give(millpond, line, *words):
    """The command, with this on its standard input."""
    told = [str(COMMAND), "-vvv", "--config-file", str(millpond.config), *map(str, words)]
    done = subprocess.run(told, input=line, capture_output=True, timeout=100, check=False)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    assert len(line) < 3 or line.strip() not in done.stdout + done.stderr
    return done.returncode, done.stderr.decode().partition("millpond: ")[2]


@pytest.fixture
def guest(millpond, micro_guest):
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    millpond.ok("server", "create", "web", "--image", "guest", "--memory", "16M")
    return millpond


REFUSED = (
    (b"", ("web",), 2, "there is no password"),
    (b"\n", ("web",), 2, "there is no password"),
    (b"\xff\xfe\n", ("web",), 2, "the password is not UTF-8 text"),
    (b"a\tb\n", ("web",), 2, "no control characters"),
    (b"x" * 600, ("web",), 2, "512 characters at the most"),
    (b"x\n", ("web", "--user", "a:b"), 2, "'a:b' cannot be the name of a user"),
    (b"x\n", ("nosuch",), 3, "there is no server 'nosuch'"),
    (SECRET.encode(), ("web",), 10, "the guest agent of server 'web' does not answer"),
)


def test_what_cannot_be_set_is_told_in_a_sentence(guest):
    for line, words, status, sentence in REFUSED:
        code, message = give(guest, line, "server", "password", *words)
        assert (code, sentence in message, "hint: " in message) == (status, True, True), message


def test_a_guest_that_is_off_has_no_agent(guest):
    guest.ok("server", "stop", "web", "--force")
    code, message = give(guest, SECRET.encode(), "server", "password", "web")
    assert (code, "server 'web' is stopped" in message) == (4, True)


def test_a_domain_without_the_channel_gets_it_by_a_reboot(guest, connection):
    domain = connection.lookupByName("web")
    domain.destroy()
    xml = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    connection.defineXML(xml.replace(AGENT, "org.example.other")).create()
    code, message = give(guest, SECRET.encode(), "server", "password", "web")
    assert (code, "no channel of the guest agent" in message) == (5, True), message
    assert "'millpond server reboot web' gives it one" in message
    guest.ok("server", "reboot", "web", "--hard")
    code, message = give(guest, SECRET.encode(), "server", "password", "web")
    assert (code, "does not answer" in message) == (10, True), message


def test_on_a_terminal_it_is_asked_for_twice_and_not_shown(guest):
    words = (COMMAND, "--config-file", guest.config, "server", "password", "web")
    with open_terminal(words) as terminal:
        terminal.wait_for("New password of root in web: ")
        terminal.type(f"{SECRET}\n")
        terminal.wait_for("Repeat for confirmation: ")
        terminal.type("another\n")
        terminal.wait_for("do not match")
        for prompt in ("New password of root in web: ", "Repeat for confirmation: "):
            terminal.wait_for(prompt)
            terminal.type(f"{SECRET}\n")
        assert terminal.finish() == 10
    assert "does not answer" in terminal.shown
    assert SECRET not in terminal.shown
