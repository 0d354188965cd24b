"""The plug-in that docs/plugins.md shows, as a distribution."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"


def install(directory: Path) -> Path:
    """Built and installed from the page's text; answers what belongs into PYTHONPATH."""
    source = directory / "millpond-mirror"
    source.mkdir()
    (source / "millpond_mirror.py").write_text(_block("python"))
    (source / "pyproject.toml").write_text(_block("toml"))
    target = directory / "installed"
    words = ["install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [sys.executable, "-m", "pip", *words, "--target", str(target), str(source)], check=True
    )
    return target


def _block(language: str) -> str:
    [text] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert isinstance(text, str)
    return text
