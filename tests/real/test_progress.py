"""What a terminal shows while bytes are copied."""

import os
import re
import subprocess

import pytest

from millpond.model.sizes import MiB
from tests.support.millpond import COMMAND
from tests.support.terminal import open_terminal

SIZE = 384


@pytest.fixture
def wide(millpond, workdir):
    """A VMDK image whose conversion takes longer than a bar needs to be drawn."""
    raw, image = workdir / "wide.raw", workdir / "wide.vmdk"
    with raw.open("wb") as file:
        for _ in range(SIZE):
            file.write(os.urandom(MiB))
    subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "vmdk", raw, image], check=True)
    raw.unlink()
    millpond.ok("image", "add", image, "--name", "wide")
    image.unlink()
    return millpond


def test_the_bar_moves_while_a_template_is_converted(wide):
    words = ("--image", "wide", "--memory", "16M", "--network", "none", "--no-start")
    command = [COMMAND, "--config-file", wide.config, "server", "create", "web", *words]
    with open_terminal(command) as terminal:
        assert terminal.finish(120) == 0, terminal.shown
    shown = {float(each) for each in re.findall(r"([\d.]+)/[\d.]+ MiB", terminal.shown)}
    assert [each for each in shown if 0 < each < SIZE], sorted(shown)
