"""The locks in requirements/: of the present dependencies, with checksums, without a host."""

import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCKS = [*sorted(ROOT.glob("requirements/*.txt")), *sorted(ROOT.glob("tools/*/*.txt"))]


def _check(root):
    return subprocess.run(
        [root / "tools/lock", "--check"], capture_output=True, text=True, check=False
    )


def test_the_locks_are_of_the_present_dependencies():
    done = _check(ROOT)
    assert done.returncode == 0, done.stderr


def test_a_dependency_that_was_added_makes_the_locks_stale(tmp_path):
    for name in ("requirements", "tools"):
        shutil.copytree(ROOT / name, tmp_path / name)
    project = (ROOT / "pyproject.toml").read_text()
    (tmp_path / "pyproject.toml").write_text(
        project.replace("dependencies = [", 'dependencies = ["added>=1",', 1)
    )
    done = _check(tmp_path)
    assert done.returncode == 1
    assert "requirements/core.txt" in done.stderr
    assert "make lock" in done.stderr


def test_every_package_has_a_version_and_a_checksum():
    assert len(LOCKS) == 12
    for lock in LOCKS:
        lines = [line for line in lock.read_text().splitlines() if not line.startswith("#")]
        packages = [line for line in lines if not line.startswith(("-r ", "    --hash=sha256:"))]
        assert packages
        for package in packages:
            assert re.fullmatch(r"[a-z0-9.-]+==[^ ]+( ; [^\\]+)? \\", package), (lock, package)


def test_no_lock_has_an_address():
    for lock in LOCKS:
        assert "://" not in lock.read_text(), lock
        assert "index" not in re.sub(r"(?m)^[a-z].*", "", lock.read_text()), lock
