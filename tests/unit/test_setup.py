"""tools/setup: its stages do not disturb one another, and what fails there speaks for itself."""

import fcntl
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETUP = ROOT / "tools/setup"
FILES = [SETUP, *sorted((ROOT / "tools/setup.d").glob("*.sh"))]

_DEFINITION = re.compile(
    r"^ *(?:function )?([\w-]+) ?\(\)|^ *(?:readonly|declare -r\w*) ([^'\"#]*)", re.MULTILINE
)


def test_no_name_is_defined_twice():
    names = Counter(name for file in FILES for name in _names(file.read_text()))
    assert names["download_packages"] == 1  # the search finds something
    assert names["STAGES"] == 1
    assert [name for name, count in names.items() if count > 1] == []


def _names(text):
    for function, constants in _DEFINITION.findall(text):
        yield from [function] if function else re.findall(r"(\w+)=", constants)


def test_a_stage_sees_the_common_functions_and_its_own_alone():
    """Functions of another stage would be used by mistake, and disturb it when they change."""
    common = set(_names((ROOT / "tools/setup.d/common.sh").read_text()))
    known = common | set(_names(SETUP.read_text()))
    everywhere = {name for file in FILES for name in _names(file.read_text())}
    for file in FILES[1:]:
        text = "\n".join(re.sub(r"(^| )#.*", "", line) for line in file.read_text().splitlines())
        used = set(re.findall(r"(?<![\w.-])[\w]+(?![\w.-])", text)) & everywhere
        assert used - known - set(_names(file.read_text())) == set(), file.name


@pytest.mark.skipif(
    not Path("/usr/bin/dpkg-query").exists(), reason="Debian's packages: none here"
)
def test_a_renamed_package_is_looked_for_by_both_names():
    listed = (
        "dpkg  the first\nno-such|dpkg  an older name\ndpkg|no-such  a newer one\nno-such  none\n"
    )
    script = 'source tools/setup.d/common.sh; missing_packages "$1"; known_name "no-such|dpkg"'
    done = subprocess.run(
        ["bash", "-euc", script, "-", listed], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["no-such", "dpkg"]


def test_uv_uses_the_index_that_pip_is_told_to_use(tmp_path):
    (tmp_path / "uv").symlink_to(sys.prefix)  # any environment with pip
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = http://127.0.0.1/mirror\n")
    environment = {"MILLPOND_CACHE": str(tmp_path), "HOME": str(tmp_path), "PATH": os.defpath}
    configured = environment | {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}
    said = "UV_DEFAULT_INDEX=http://127.0.0.1/mirror\n"
    assert _pip_index(configured) == said
    assert _pip_index(environment | {"PIP_INDEX_URL": "http://127.0.0.1/mirror"}) == said
    assert _pip_index(configured | {"UV_DEFAULT_INDEX": "http://127.0.0.1/other"}) == ""


def _pip_index(environment):
    words = ["bash", "-euc", "source tools/setup.d/common.sh; pip_index"]
    return subprocess.run(
        words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="apt-get update is for root: sudo make check")
def test_a_failing_apt_get_is_quoted(tmp_path):
    """One without any source: real, and unable to download."""
    (tmp_path / "lists").mkdir()
    configuration = tmp_path / "apt.conf"
    configuration.write_text(
        'Dir::Etc::SourceList "/dev/null"; Dir::Etc::SourceParts "/dev/null";'
        f'Dir::State::Lists "{tmp_path}/lists"; Dir::Cache "{tmp_path}/cache";'
    )
    environment = {**os.environ, "APT_CONFIG": str(configuration), "LC_ALL": "C"}
    done = subprocess.run(
        [SETUP, "guest-packages"],
        env=environment | {"MILLPOND_CACHE": str(tmp_path / "cache of millpond")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    first, *_, said, last = done.stderr.splitlines()
    assert "will refresh the package lists" in first
    assert said == "E: No packages found"
    assert last == "setup: the stage guest-packages failed."


def test_two_set_ups_of_a_machine_wait_for_each_other():
    """At once they would both start virtlogd, and one would fail."""
    with Path("/etc/os-release").open("rb") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        second = subprocess.Popen(
            [SETUP, "--dry-run", "state"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert second.stdout.readline() == (
            "setup: another set-up runs on this machine: waiting for it.\n"
        )
        assert second.poll() is None
    assert second.wait(timeout=20) == 0
