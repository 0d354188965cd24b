"""A clone works in any directory: below what others mount, and with blanks in its path."""

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_IMPORT = "import millpond; print(millpond.__file__)"
_REASON = "the nested machine is built by mmdebstrap, as root: tools/setup nested-packages"

pytestmark = [
    pytest.mark.timeout(900),  # the nested machine may have to be built
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mmdebstrap"), reason=_REASON),
]


@pytest.fixture(scope="module", params=["/tmp", "/run"])
def clone(request) -> Iterator[Path]:
    """A copy of this repository, with a .venv of its own."""
    top = Path(request.param, f"millpond-{uuid.uuid4().hex[:8]}")
    path = top / "a b" / "millpond"
    shutil.copytree(ROOT, path, ignore=shutil.ignore_patterns(".*", "_build", "__pycache__"))
    subprocess.run([path / "tools/setup", "venv"], check=True)
    yield path
    shutil.rmtree(top)


def test_a_clone_works_in_the_nested_machine(clone):
    said = _run(clone, "tools/nested/run", "--seconds", "600", ".venv/bin/python", "-c", _IMPORT)
    assert said.splitlines()[-1] == str(clone / "src/millpond/__init__.py")


def test_commands_and_linters_of_a_clone_start(clone):
    assert _run(clone, ".venv/bin/millpond", "--version").startswith("millpond ")
    _run(clone, ".venv/bin/lint-imports", "--help")
    _run(clone, "make", "--dry-run", "check", "test", "demo")


def test_the_private_libvirtd_starts_in_a_clone(clone):
    harness = (
        "tests/real/test_harness.py::test_a_guest_boots_from_a_volume_and_is_ready_within_seconds"
    )
    _run(clone, ".venv/bin/python", "-m", "pytest", "-x", "-p", "no:cacheprovider", harness)


def _run(clone, *words):
    done = subprocess.run(words, cwd=clone, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout
