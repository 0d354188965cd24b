"""The page of results: both drivers side by side, and each skip with its reason."""

import itertools
import platform
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime

from tests.tempest.outcome import Outcome, Outcomes, Status, regressions, unanswered
from tests.tempest.selection import LEFT_OUT


def written(
    ours: Outcomes, stock: Outcomes, *, listed: Collection[str], patterns: Sequence[str]
) -> str:
    parts = (_head(patterns), _results(ours, stock, listed), _tests(ours, stock))
    skips = (_skips({**stock, **ours}), _left_out())
    return "\n".join(itertools.chain(*parts, *skips)) + "\n"


def _head(patterns: Sequence[str]) -> Iterator[str]:
    yield f"# Tempest on {datetime.now(UTC):%Y-%m-%d}\n"
    yield f"{platform.machine()}, Python {platform.python_version()}. `make test-tempest` writes"
    yield "such a page. Ours is Millpond's driver with `qcow2:qcow2, raw:raw`, stock is Nova's own"
    yield "with `images_type = qcow2`: a cloud of its own for each, with two hosts that share the"
    yield "directory of instances, guests under emulation (TCG), and"
    yield "`[scheduler] query_placement_for_image_type_support = True`. A busy machine changes the"
    yield "seconds. The list is all that is not marked slow of:\n"
    yield from (f"    {each}" for each in patterns)


def _results(ours: Outcomes, stock: Outcomes, listed: Collection[str]) -> Iterator[str]:
    yield "\n| | passed | failed | skipped | seconds |\n|---|---|---|---|---|"
    yield from (_count(name, each) for name, each in (("ours", ours), ("stock", stock)))
    yield "\n## Passes on the stock driver and not on ours\n"
    nothing = f"nothing, of the {len({*ours} & {*stock})} that both have answered"
    yield from (f"- {name}" for name in regressions(ours, stock, listed) or [nothing])
    yield "\n## Did not run\n"
    yield from _unanswered(ours, stock, listed)
    yield "\n## Failures\n"
    yield "| test | driver | last words |\n|---|---|---|"
    yield from _failures("ours", ours)
    yield from _failures("stock", stock)


def _count(name: str, outcomes: Outcomes) -> str:
    counts = Counter(each.status for each in outcomes.values())
    seconds = sum(each.seconds for each in outcomes.values())
    cells = (name, *(counts[status] for status in Status), f"{seconds:.0f}")
    return f"| {' | '.join(map(str, cells))} |"


def _unanswered(ours: Outcomes, stock: Outcomes, listed: Collection[str]) -> Iterator[str]:
    missing = {"ours": unanswered(listed, ours), "stock": unanswered(listed, stock)}
    for driver, names in missing.items():
        yield f"- {driver}: {len(names)} of {len(listed)}"
    both = {*missing["ours"]} & {*missing["stock"]}
    classes = Counter(name.rpartition(".")[0] for name in both)
    yield from (f"- {name}: {count}" for name, count in sorted(classes.items()))


def _failures(driver: str, outcomes: Outcomes) -> Iterator[str]:
    for name, each in sorted(outcomes.items()):
        if each.status is Status.FAILED:
            yield f"| {name} | {driver} | {_cell(each.reason)} |"


def _tests(ours: Outcomes, stock: Outcomes) -> Iterator[str]:
    yield "\n## Tests\n"
    yield "| test | ours | stock |\n|---|---|---|"
    for name in sorted({*ours, *stock}):
        both = [each for each in (ours.get(name), stock.get(name)) if each]
        if any(each.status is not Status.SKIPPED for each in both):
            yield f"| {name} | {_shown(ours.get(name))} | {_shown(stock.get(name))} |"


def _shown(outcome: Outcome | None) -> str:
    return f"{outcome.status}, {outcome.seconds:.0f} s" if outcome else "did not run"


def _skips(outcomes: Outcomes) -> Iterator[str]:
    yield "\n## Skipped\n"
    yield "| reason | tests |\n|---|---|"
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, each in sorted(outcomes.items()):
        if each.status is Status.SKIPPED:
            found[each.reason].append(name)
    for reason, names in sorted(found.items()):
        yield f"| {_cell(reason)} | {', '.join(names)} |"


def _left_out() -> Iterator[str]:
    yield "\n## Left out\n"
    yield "| pattern | reason |\n|---|---|"
    yield from (f"| `{pattern}` | {reason} |" for pattern, reason in LEFT_OUT.items())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")[:300]
