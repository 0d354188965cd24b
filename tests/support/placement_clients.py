"""Many who want a host at once: threads of one process, or processes.

python -m tests.support.placement_clients WHERE COUNT THREADS HOST…      prints what became of each

WHERE is a directory, which the embedded Placement is in, or a directory, a comma and a URL.
"""

import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from millpond.errors import NoValidHost
from millpond.model.cloud import CloudAccess
from millpond.model.transfer import Patience
from millpond.scheduling.api import Transport
from millpond.scheduling.placement import Placement
from tests.support import forked
from tests.support.scheduling import Hosts, request


def transport(where: str) -> Transport:
    """The other one is not loaded."""
    directory, _, url = where.partition(",")
    if url:
        from millpond.scheduling.external import ExternalPlacement

        patience = Patience(connect_seconds=30, read_seconds=120, retries=0)
        return ExternalPlacement(
            CloudAccess(
                cloud="",
                auth_type="none",
                auth={},
                endpoint_override=url,
                region_name="",
                cafile="",
                insecure=False,
                patience=patience,
            ),
            Path(directory),
        )
    from millpond.scheduling.embedded import EmbeddedPlacement

    return EmbeddedPlacement(Path(directory))


def claim_all(placement: Placement, count: int, threads: int, hosts: Sequence[str]) -> list[str]:
    """Where each came to be; of those who lost, why."""
    ours = Hosts(placement, *hosts)

    def one(_number: int) -> str:
        try:
            return ours.create(request()).host
        except NoValidHost as error:
            return str(error)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(one, range(count)))


def claim_in_processes(where: str, processes: int, count: int, hosts: Sequence[str]) -> list[str]:
    """``count`` each."""
    words = ["placement_clients", where, str(count), "1", *hosts]

    def one(_number: int) -> list[str]:
        done = forked.run(main, words, seconds=100)
        assert done.returncode == 0, done.stderr
        came: list[str] = json.loads(done.stdout)
        return came

    with ThreadPoolExecutor(processes) as pool:
        return [host for came in pool.map(one, range(processes)) for host in came]


def main() -> None:
    where, count, threads, *hosts = sys.argv[1:]
    print(json.dumps(claim_all(Placement(transport(where)), int(count), int(threads), hosts)))


if __name__ == "__main__":
    main()
