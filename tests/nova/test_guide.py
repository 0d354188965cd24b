"""docs/nova-operations.md against the programs that it names."""

import configparser
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from millpond import config
from tests.support.openstack.environment import python, reason_to_skip
from tests.support.openstack.service import isolated

_ROOT = Path(__file__).parents[2]
_PAGE = (_ROOT / "docs/nova-operations.md").read_text()
_NOVAS = "/opt/nova/bin/"
_FILE = "/etc/nova/nova.conf"
_BLOCKS = "".join(re.findall(r"```console\n(.*?)```", _PAGE, re.S))
_SHOWN = re.findall(r"^[#$] (.+)$", _BLOCKS, re.M)
_SHOWN += re.findall(r"`((?:/opt/nova/bin/|openstack )[^`]+)`", _PAGE)
_OTHERS = {"systemctl", "rm", "openstack"}
"""Not programs of Nova's environment."""


def _written() -> configparser.ConfigParser:
    """All that is to be written into nova.conf."""
    found = configparser.ConfigParser()
    blocks = re.findall(r"```ini\n(.*?)```", _PAGE, re.S)
    for block in blocks:
        if not block.startswith("[Service]"):
            found.read_string(block)
    return found


@pytest.fixture(autouse=True)
def _environment() -> None:
    if reason := reason_to_skip():
        pytest.skip(reason)


def _ran(directory: Path, *words: object) -> subprocess.CompletedProcess[str]:
    command = isolated(directory, *words, PYTHONPATH=_ROOT / "src")
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_command_is_of_a_program_that_is_checked_here() -> None:
    others = {each.split()[0] for each in _SHOWN if not each.startswith(_NOVAS)}
    assert others == _OTHERS
    ours = {each.removeprefix(_NOVAS).split()[0] for each in _SHOWN if each.startswith(_NOVAS)}
    assert ours == {"pip", "millpond-nova-doctor", "millpond-nova-transition"}


def _ours() -> list[str]:
    return sorted({each for each in _SHOWN if each.startswith(f"{_NOVAS}millpond")})


@pytest.mark.full
@pytest.mark.parametrize("command", _ours())
def test_a_command_of_ours_is_understood(command: str, tmp_path: Path) -> None:
    """It gets as far as refusing what the file says, which is read after all words."""
    file = tmp_path / "nova.conf"
    file.write_text("[DEFAULT]\ntransport_url = fake:/\n[libvirt]\nvirt_type = lxc\n")
    assert _FILE in command
    program, *words = shlex.split(command.removeprefix(_NOVAS).replace(_FILE, str(file)))
    project = (_ROOT / "pyproject.toml").read_text()
    entry = re.search(rf'^{program} = "([\w.]+):main"$', project, re.M)
    assert entry
    done = _ran(tmp_path, python(), "-W", "ignore", "-m", entry[1], *words)
    assert done.returncode == 2
    assert f"{program}: " in done.stderr
    assert "[libvirt] virt_type: Millpond runs no 'lxc' guests" in done.stderr, done.stderr


def test_the_unit_starts_a_program_that_is_installed() -> None:
    unit = re.search(r"```ini\n(\[Service\].*?)```", _PAGE, re.S)
    assert unit
    starts = re.findall(r"^ExecStart=(.*)$", unit[1], re.M)
    assert starts == ["", f"{_NOVAS}millpond-nova-compute --config-file /etc/nova/nova.conf"]
    assert re.search(r"^millpond-nova-compute = ", (_ROOT / "pyproject.toml").read_text(), re.M)


def test_what_is_written_into_nova_conf_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "nova.conf"
    with file.open("w") as written:
        _written().write(written)
    config.load([file])


def test_nova_knows_the_driver_and_every_option_that_is_not_ours(tmp_path: Path) -> None:
    file = tmp_path / "nova.conf"
    with file.open("w") as written:
        _written().write(written)
    code = (
        "import sys\n"
        "from millpond.nova import compute\n"
        "import nova.conf.libvirt, nova.virt, nova.config\n"
        "from millpond import config\n"
        "config.widen(nova.conf.libvirt.libvirt_imagebackend_opts)\n"
        "nova.virt.__path__.append(str(compute._PLUGIN))\n"
        "nova.config.parse_args(['nova-compute', '--config-file', sys.argv[1]])\n"
        "from oslo_utils import importutils\n"
        "conf = nova.conf.CONF\n"
        "print(importutils.import_class('nova.virt.' + conf.compute_driver).__name__)\n"
        "print(conf.libvirt.images_type)\n"
    )
    done = _ran(tmp_path, python(), "-W", "ignore", "-c", code, file)
    assert done.stdout.split() == ["MillpondDriver", "libvirt-storage"], done.stderr
