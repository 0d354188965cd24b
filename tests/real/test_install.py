"""The command as people install it: into a prefix, and as a package."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = Path(os.environ.get("MILLPOND_CACHE", Path.home() / ".cache/millpond")) / "uv/bin/uv"
PARTS = (
    "bin/millpond",
    "share/man/man1/millpond.1",
    "share/bash-completion/completions/millpond",
    "lib/systemd/system/millpond-cache.service",
    "lib/systemd/system/millpond-cache.timer",
)

pytestmark = pytest.mark.timeout(300)


def run(*words, **environment):
    done = subprocess.run(
        [*map(str, words)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files(directory):
    return {str(each.relative_to(directory)) for each in directory.rglob("*") if not each.is_dir()}


def test_it_is_installed_upgraded_and_removed(tmp_path, workdir):
    prefix = tmp_path / "a prefix"
    for _ in ("install", "upgrade"):
        run(ROOT / "tools/install", "--prefix", prefix)
        assert run(prefix / "bin/millpond", "--version").startswith("millpond ")
        assert set(PARTS) <= files(prefix)
        assert not list(prefix.glob("lib/millpond.*"))
    config = workdir / "millpond.conf"
    config.write_text(f"[DEFAULT]\nstate_path = {workdir / 'state'}\n")
    assert (
        run(prefix / "bin/millpond", "--config-file", config, "image", "list", "--json") == "[]\n"
    )
    assert "server create" in (prefix / "share/man/man1/millpond.1").read_text()
    (prefix / "share/other").write_text("not ours")
    run(ROOT / "tools/install", "--prefix", prefix, "--remove")
    assert files(prefix) == {"share/other"}


def test_a_wheel_is_all_that_a_clean_environment_needs(tmp_path):
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist")
    (wheel,) = (tmp_path / "dist").iterdir()
    places = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    script = 'source tools/setup.d/common.sh; run_uv tool install --quiet --python "$1" "$2"'
    run(
        "bash",
        "-euc",
        script,
        "-",
        sys.executable,
        wheel,
        REPOSITORY=str(ROOT),
        MILLPOND_CACHE=str(UV.parents[2]),
        **places,
    )
    assert run(tmp_path / "bin/millpond", "--version").startswith("millpond ")
    assert "images_type_mapping" in run(tmp_path / "bin/millpond", "config", "sample")
