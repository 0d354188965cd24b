"""docs/nova.md against the Nova that is installed."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from millpond.nova.releases import SUPPORTED
from tests.support.openstack.environment import NOVA, OLDER_NOVA, python, reason_to_skip

_ROOT = Path(__file__).parents[2]
_PROGRAMS = _ROOT / "tests/support/openstack/programs"
_PAGE = (_ROOT / "docs/nova.md").read_text()
_VERDICTS = {"honoured", "no effect", "refused"}


def test_every_override_is_in_the_table_with_the_signature_that_nova_has(tmp_path: Path) -> None:
    assert _signatures() == _printed("overrides.py", tmp_path)


@pytest.mark.full
def test_what_the_older_nova_has_otherwise_is_in_a_table_of_its_own(tmp_path: Path) -> None:
    usual = _signatures()
    older = dict(re.findall(r"^\| `(\w+\.\w+)` \| `([^`]*)` \|$", _PAGE, re.M))
    assert usual | older == _printed("overrides.py", tmp_path, OLDER_NOVA)
    assert [name for name, signature in older.items() if usual[name] == signature] == []


@pytest.mark.full
def test_what_options_the_older_nova_has_not_is_said(tmp_path: Path) -> None:
    older, found = (_printed("options.py", tmp_path, each) for each in (OLDER_NOVA, NOVA))
    said = re.search(r"Nova 33 has neither (.*?); it has (.*?) besides\.", _PAGE, re.S)
    assert said
    gone, besides = (sorted(re.findall(r"`(\w+)`", each)) for each in said.groups())
    assert gone == sorted(set(found["libvirt"]) - set(older["libvirt"]))
    assert besides == sorted(set(older["libvirt"]) - set(found["libvirt"]))


def test_the_releases_that_are_said_to_be_supported_are_those_that_are_started_with() -> None:
    said = re.findall(r"^\| (\d+) \| .+ \|$", _PAGE, re.M)
    assert [int(each) for each in said] == list(SUPPORTED) == [OLDER_NOVA, NOVA]


def _signatures() -> dict[str, str]:
    return dict(re.findall(r"^\| `(\w+\.\w+)` \| `(.*?)` \| .+ \|$", _PAGE, re.M))


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


def _printed(program: str, home: Path, release: int = NOVA) -> Any:
    if reason := reason_to_skip(release):
        pytest.skip(reason)
    done = subprocess.run(
        [python(release), "-W", "ignore", _PROGRAMS / program],
        env={"PYTHONPATH": str(_ROOT / "src"), "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
