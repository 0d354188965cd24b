"""Ask Tempest of both drivers. Exits with 1 if a test fails on ours and passes on Nova's own."""

import argparse
import sys
import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.support import libvirtd, session
from tests.support.openstack.deployment import MILLPOND, NOVA
from tests.support.openstack.environment import reason_to_skip, reason_to_skip_tempest
from tests.tempest.outcome import Outcomes, Status, read, regressions, unanswered
from tests.tempest.page import written
from tests.tempest.runner import ask, readable
from tests.tempest.selection import SHORT, WHOLE

_SECONDS = 3600


def main() -> None:
    options = _options()
    if reason := (
        session.reason_to_skip()
        or libvirtd.reason_to_skip()
        or reason_to_skip()
        or reason_to_skip_tempest()
    ):
        sys.exit(f"tests.tempest: {reason}")
    options.results.mkdir(parents=True, exist_ok=True)
    for driver in options.driver or (MILLPOND, NOVA):
        _ask(driver, options)
    streams = [options.results / f"{driver}.subunit" for driver in (MILLPOND, NOVA)]
    if all(each.exists() for each in streams):
        ours, stock = (read(readable(each.read_bytes())) for each in streams)
        listed = streams[0].with_suffix(".list").read_text().splitlines()
        if options.page:
            page = written(ours, stock, listed=listed, patterns=_patterns(options))
            options.page.write_text(page)
        sys.exit(_judge(ours, stock, listed))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.tempest", description=__doc__)
    parser.add_argument("patterns", nargs="*", help="of other tests than those of the whole list")
    parser.add_argument("--short", action="store_true", help="the short list")
    parser.add_argument("--page", type=Path, help="write what became of them to this file")
    parser.add_argument("--workers", type=int, default=2, help="tests at once (default: 2)")
    parser.add_argument(
        "--seconds", type=float, default=_SECONDS, help="of each driver (default: %(default)s)"
    )
    parser.add_argument(
        "--driver", action="append", choices=(MILLPOND, NOVA), help="this one only"
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=Path(f"/var/tmp/millpond-tempest-{datetime.now(UTC):%FT%H%M%S}"),
        help="where the streams of results stay; a driver that has one there is not asked again",
    )
    return parser.parse_args()


def _ask(driver: str, options: argparse.Namespace) -> None:
    stream = options.results / f"{driver}.subunit"
    if stream.exists():
        return
    begun = time.monotonic()
    print(f"{driver}: asking Tempest", flush=True)
    with session.session_directory() as directory:
        ask(
            driver,
            directory,
            _patterns(options),
            stream,
            workers=options.workers,
            seconds=options.seconds,
        )
    print(f"{driver}: {time.monotonic() - begun:.0f} s, {stream}", flush=True)


def _patterns(options: argparse.Namespace) -> Sequence[str]:
    return options.patterns or (SHORT if options.short else WHOLE)


def _judge(ours: Outcomes, stock: Outcomes, listed: Collection[str]) -> int:
    for name, each in sorted(ours.items()):
        if each.status is Status.FAILED:
            print(f"failed on ours: {name}: {each.reason}")
    worse, missing = regressions(ours, stock), unanswered(listed, ours)
    for name in worse:
        print(f"passes on the stock driver and not on ours: {name}")
    passed = sum(each.status is Status.PASSED for each in ours.values())
    print(f"ours: {passed} passed, {len(worse)} are worse, {len(missing)} did not run")
    return int(bool(worse or missing) or not passed)


if __name__ == "__main__":
    main()
