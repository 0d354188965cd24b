"""Kill random operations for some time, or so many times, and look at every byte after each
recovery. Exits with 1 if anything was lost, leaked or wrong."""

import argparse
import multiprocessing
import secrets
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.chaos.worker import Report, Task, work
from tests.support import libvirtd, session

_SECONDS = 600


def main() -> None:
    options = _options()
    if reason := session.reason_to_skip() or libvirtd.reason_to_skip():
        sys.exit(f"tests.chaos: {reason}")
    tasks = _tasks(options)
    print(f"seed {options.seed}", flush=True)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(tasks), mp_context=context) as processes:
        reports = list(processes.map(work, tasks))
    _show(options.seed, reports)
    sys.exit(any(each.violations for each in reports))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=0, help="end after so many")
    parser.add_argument("--kills", type=int, default=0, help="end after so many")
    parser.add_argument(
        "--seed",
        default=secrets.token_hex(4),
        help="the same choices again; SEED.WORKER.WORLD, as it is reported, replays that one",
    )
    parser.add_argument("--workers", type=int, default=2, help="worlds at once (default: 2)")
    parser.add_argument("--violations", type=int, default=1, help="end after so many (default: 1)")
    parser.add_argument("--verbose", action="store_true", help="print each operation")
    options = parser.parse_args()
    if not options.seconds and not options.kills:
        options.seconds = _SECONDS
    return options


def _tasks(options: argparse.Namespace) -> list[Task]:
    seed, *one = options.seed.split(".")
    workers = [int(one[0])] if one else range(options.workers)
    return [
        Task(
            seed=seed,
            worker=worker,
            seconds=options.seconds,
            kills=options.kills / len(workers),
            violations=options.violations,
            first=int(one[1]) if one else 0,
            verbose=options.verbose,
        )
        for worker in workers
    ]


def _show(seed: str, reports: Sequence[Report]) -> None:
    kills = sum((each.kills for each in reports), Counter[str]())
    seconds = max(each.seconds for each in reports)
    violations = [what for each in reports for what in each.violations]
    for kind, count in kills.most_common():
        print(f"{count:6} {kind}")
    turns = sum(each.turns for each in reports)
    print(
        f"seed {seed}: {kills.total()} kills in {turns} turns and {seconds:.0f} s "
        f"({kills.total() / seconds:.1f} per second), {len(violations)} violations"
    )
    for each in violations:
        print(f"  {each}")


if __name__ == "__main__":
    main()
