"""Ask Tempest of both drivers. Exits with 1 if a test fails on ours and passes on Nova's own."""

import argparse
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.support import libvirtd, session
from tests.support.openstack.deployment import MILLPOND, NOVA
from tests.support.openstack.environment import reason_to_skip, reason_to_skip_tempest
from tests.tempest.answers import Answers
from tests.tempest.outcome import Status, regressions
from tests.tempest.page import written
from tests.tempest.runner import ask
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
    ours, stock = (Answers(directory=options.results, driver=each) for each in (MILLPOND, NOVA))
    for each in (ours, stock):
        if not options.driver or each.driver in options.driver:
            _ask(each, options)
    if options.page:
        outcomes = ours.outcomes(), stock.outcomes()
        page = written(*outcomes, listed=ours.listed(), patterns=_patterns(options))
        options.page.write_text(page)
    sys.exit(_judge(ours, stock))


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
        "--again", action="store_true", help="ask once more for all but what passed"
    )
    parser.add_argument(
        "--driver", action="append", choices=(MILLPOND, NOVA), help="this one only"
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=Path(f"/var/tmp/millpond-tempest-{datetime.now(UTC):%FT%H%M%S}"),
        help="what became of the tests, and stays: only what is missing there is asked for",
    )
    return parser.parse_args()


def _ask(answers: Answers, options: argparse.Namespace) -> None:
    answers.take()  # of a session that was killed
    if options.again:
        answers.keep_passed()
    if answers.listed() and not answers.missing():
        return
    begun = time.monotonic()
    print(f"{answers.driver}: asking Tempest", flush=True)
    with session.session_directory() as directory:
        ask(
            answers,
            directory,
            _patterns(options),
            workers=options.workers,
            seconds=options.seconds,
        )
    print(f"{answers.driver}: {time.monotonic() - begun:.0f} s", flush=True)


def _patterns(options: argparse.Namespace) -> Sequence[str]:
    return options.patterns or (SHORT if options.short else WHOLE)


def _judge(ours: Answers, stock: Answers) -> int:
    found = ours.outcomes()
    for name, each in sorted(found.items()):
        if each.status is Status.FAILED:
            print(f"failed on ours: {name}: {each.reason}")
    worse = regressions(found, stock.outcomes(), ours.listed())
    for name in worse:
        print(f"passes on the stock driver and not on ours: {name}")
    passed = sum(each.status is Status.PASSED for each in found.values())
    missing = {each.driver: len(each.missing()) for each in (ours, stock)}
    print(f"ours: {passed} passed, {len(worse)} are worse")
    for driver, count in missing.items():
        print(
            f"{driver}: {count} did not run; the same words with --results again go on with them"
        )
    return int(bool(worse or any(missing.values())) or not passed)


if __name__ == "__main__":
    main()
