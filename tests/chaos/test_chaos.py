"""A short, chosen portion of the kills of ``make test-chaos``."""

import pytest

from tests.chaos.worker import Task, work_on

SECONDS = 16


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("worker", [0, 1], ids=["one file system", "pools apart"])
def test_nothing_is_lost_or_left_by_random_kills(libvirtd, session_directory, micro_guest, worker):
    task = Task(seed="ordinary", worker=worker, seconds=SECONDS)
    report = work_on(task, libvirtd, session_directory, micro_guest)
    assert report.violations == []
    assert report.kills.total() > 0
