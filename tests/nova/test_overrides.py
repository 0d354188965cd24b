"""docs/nova.md against the Nova that is installed."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.openstack.environment import python, reason_to_skip

_ROOT = Path(__file__).parents[2]
_PROGRAM = _ROOT / "tests/support/openstack/programs/overrides.py"


def test_every_override_is_in_the_table_with_the_signature_that_nova_has(tmp_path: Path) -> None:
    if reason := reason_to_skip():
        pytest.skip(reason)
    done = subprocess.run(
        [python(), "-W", "ignore", _PROGRAM],
        env={"PYTHONPATH": str(_ROOT / "src"), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    page = (_ROOT / "docs/nova.md").read_text()
    said = dict(re.findall(r"^\| `(\w+\.\w+)` \| `(.*?)` \| .+ \|$", page, re.M))
    assert said == found
