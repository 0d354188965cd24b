"""The transcripts of README.md and docs/first-server.md are what their commands really print, with
a real cloud image; that of docs/transition.md with servers as Nova leaves them. ``pytest
--regenerate`` writes them again; what is behind the prompts is typed as it stands there."""

import os
import re
import shlex
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.support.millpond import COMMAND
from tests.support.nova_tree import NovaServer, disk_xml
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
MARK = "<!-- transcript: written by tests/real/test_transcripts.py -->"
BLOCK = re.compile(rf"(?<={re.escape(MARK)}\n```console\n).*?(?=^```$)", re.S | re.M)
PROMPT = "# "
IMAGE = "debian-12-genericcloud-amd64.qcow2"
LONG = 6
KEPT = ("Name ", "State ", "Size ", "NIC 0 ")
"""Of what takes more lines than LONG. The rest is left out."""
LEFT_OUT = "[…]"
NORMAL = (
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
    (r"\([0-9a-f]{8}\)", "(ID)"),
    (r"52:54:00(:[0-9a-f]{2}){3}", "MAC"),
    (r"192\.168\.122\.\d+", "ADDRESS"),
    (r"\d+(\.\d+)? [KMG]iB", "SIZE"),
    (r"\(\d+ bytes\)", "(BYTES)"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME"),
    (r" +", " "),
)
"""What is another one each time."""


@pytest.fixture
def shell(networked, workdir, cloud_image):
    """Run a line as a person would who has the image, a key, and Millpond installed."""
    networked.define_network("default", "192.168.122.0/24", active=False)
    (workdir / IMAGE).symlink_to(cloud_image)
    key = workdir / ".ssh" / "id_ed25519"
    key.parent.mkdir(mode=0o700)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    environment = {**install_command(networked, workdir), "SSH_AUTH_SOCK": f"{workdir}/agent"}
    # ssh looks for keys in the home of the passwd file, whatever HOME says.
    agent = subprocess.Popen(
        ["ssh-agent", "-D", "-a", workdir / "agent"], stdout=subprocess.DEVNULL
    )
    wait_for((workdir / "agent").exists, 10)
    subprocess.run(["ssh-add", "-q", key], env=environment, check=True)

    yield partial(run_line, networked.libvirtd, workdir, environment)
    agent.terminate()
    agent.wait()


def run_line(libvirtd, workdir, environment, line):
    done = subprocess.run(
        libvirtd.command("sh", "-c", f"cd {shlex.quote(str(workdir))} && {line}"),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=700,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}"
    return done.stdout


def install_command(millpond, workdir):
    """As a person has it: the environment in which ``millpond`` is found."""
    (workdir / "bin").mkdir()
    command = workdir / "bin" / "millpond"
    command.write_text(f'#!/bin/sh\nexec {COMMAND} --config-file {millpond.config} "$@"\n')
    command.chmod(0o755)
    return {
        **os.environ,
        "HOME": str(workdir),
        "PATH": f"{workdir}/bin:{os.environ['PATH']}",
        "LC_ALL": "C.UTF-8",
    }


def commands(block):
    """What is typed, as it stands there, and what stands below it."""
    found = re.split(rf"^{PROMPT}", block, flags=re.M)[1:]
    for each in found:
        typed, newline, printed = re.match(r"((?:.*\\\n)*.*)(\n)([^\0]*)", each).groups()
        yield typed + newline, printed


def shorten(printed):
    lines = [each.rstrip() for each in printed.splitlines()]
    if len(lines) > LONG:
        lines = [each if each.startswith(KEPT) else LEFT_OUT for each in lines]
    lines = [LEFT_OUT if each.startswith("Warning: Permanently added") else each for each in lines]
    kept = [each for n, each in enumerate(lines) if each != LEFT_OUT or lines[n - 1 : n] != [each]]
    return "".join(f"{each}\n" for each in kept)


def play(shell, workdir, block):
    """The same block, with what was printed this time."""
    made = ""
    for typed, printed in commands(block):
        if shown := re.fullmatch(r"cat (\S+)\n", typed):
            (workdir / shown[1]).write_text(printed)
        made += f"{PROMPT}{typed}{shorten(shell(typed))}"
    return made


def normalise(text):
    for pattern, word in NORMAL:
        text = re.sub(pattern, word, text)
    return text


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", ["README.md", "docs/first-server.md"])
def test_the_transcript_is_what_really_happens(shell, workdir, pytestconfig, page):
    compare(page, shell, workdir, regenerate=pytestconfig.getoption("--regenerate"))


def test_the_transcript_of_a_compute_node_is_what_really_happens(
    millpond, libvirtd, connection, micro_guest, workdir, pytestconfig
):
    instances = millpond.state / "instances"
    instances.mkdir(parents=True)
    for directory in (millpond.state, instances):
        directory.chmod(0o755)
    for number, name in enumerate(("db", "web")):
        nova = NovaServer(instances=instances)
        devices = disk_xml(nova.overlay(micro_guest.path), "qcow2")
        xml = nova.domain(devices, name=name, domain=f"instance-0000000{number}")
        domain = connection.defineXML(xml)
    domain.create()
    shell = partial(run_line, libvirtd, workdir, install_command(millpond, workdir))
    regenerate = pytestconfig.getoption("--regenerate")
    compare("docs/transition.md", shell, workdir, regenerate=regenerate)


def compare(page, shell, workdir, *, regenerate):
    path = ROOT / page
    text = path.read_text()
    assert BLOCK.search(text)
    made = BLOCK.sub(lambda found: play(shell, workdir, found[0]), text)
    if regenerate and normalise(made) != normalise(text):
        path.write_text(made)
    assert normalise(made) == normalise(path.read_text())
