"""docs/nova.md against the Nova that is installed."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.openstack.environment import python, reason_to_skip

_ROOT = Path(__file__).parents[2]
_PROGRAMS = _ROOT / "tests/support/openstack/programs"
_PAGE = (_ROOT / "docs/nova.md").read_text()
_VERDICTS = {"honoured", "no effect", "refused"}


def test_every_override_is_in_the_table_with_the_signature_that_nova_has(tmp_path: Path) -> None:
    said = dict(re.findall(r"^\| `(\w+\.\w+)` \| `(.*?)` \| .+ \|$", _PAGE, re.M))
    assert said == _printed("overrides.py", tmp_path)


def test_every_option_of_novas_that_concerns_disks_has_a_verdict(tmp_path: Path) -> None:
    found = _printed("options.py", tmp_path)
    rows = re.findall(r"^\| `\[(\w+)\] (.+)` \| ([a-z ]+) \| .*\|$", _PAGE, re.M)
    said = [(section, name) for section, names, _ in rows for name in names.split("`, `")]
    assert {verdict for _, _, verdict in rows} == _VERDICTS
    assert [each for each in said if each[1] not in found[each[0]]] == []
    others = re.search(r"not about disks of ours: (.*?)\.\n", _PAGE, re.S)
    assert others
    of_libvirt = [name for section, name in said if section == "libvirt"]
    assert sorted(of_libvirt + re.findall(r"`(\w+)`", others[1])) == found["libvirt"]


def _printed(program: str, home: Path) -> Any:
    if reason := reason_to_skip():
        pytest.skip(reason)
    done = subprocess.run(
        [python(), "-W", "ignore", _PROGRAMS / program],
        env={"PYTHONPATH": str(_ROOT / "src"), "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
