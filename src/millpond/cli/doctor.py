"""millpond doctor"""

import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from millpond.cli.hosts import Hosts
from millpond.cli.output import as_json, table
from millpond.compute import owner
from millpond.compute.virtualization import KVM
from millpond.config import LOCAL, VirtTypeOption
from millpond.doctor import kvm, option_file
from millpond.doctor.checks import CHECKS, CONFIGURATION
from millpond.doctor.examination import examine, examine_placement
from millpond.doctor.finding import Finding, Level
from millpond.doctor.probe import GUEST, Verdict, probe_kvm
from millpond.doctor.wording import counted
from millpond.engine import Engine
from millpond.fleet import Fleet

app = typer.Typer(rich_markup_mode=None)

# On a terminal; in a pipe the level itself is the mark.
_MARKS = {
    Level.OK: ("✔", "green"),
    Level.MENDED: ("✚", "green"),
    Level.UNKNOWN: ("?", "dim"),
    Level.WARNING: ("!", "yellow"),
    Level.PROBLEM: ("✘", "bold red"),
}
_CHECK_WIDTH = max(len(name) for name in (CONFIGURATION, *(check.name for check in CHECKS)))
_LEVEL_WIDTH = max(len(level) for level in Level)


@app.callback(invoke_without_command=True)
def doctor(
    ctx: typer.Context,
    mend: Annotated[bool, typer.Option("--mend", help="Put right what can be.")] = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Take over servers that only their domains tell of.")
    ] = False,
    probe: Annotated[
        bool, typer.Option("--probe-kvm", help="Boot a guest under KVM, and see whether it can.")
    ] = False,
    guest: Annotated[
        Path, typer.Option(metavar="FILE", help="The guest of --probe-kvm, a raw disk.")
    ] = GUEST,
    placement: Annotated[
        bool, typer.Option("--placement", help="Compare Placement with the servers' records.")
    ] = False,
    host: Hosts = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look for what is wrong on the hosts and say what to do about it."""
    files: tuple[Path, ...] = ctx.obj.config_files
    if probe:
        _probe(files, host, guest.expanduser())
    elif adopt:
        _adopt(files, host, json)
    elif placement:
        _examine(examine_placement(files, mend=mend), json)
    else:
        _examine(examine(files, host, mend=mend), json)


def _examine(findings: Iterator[Finding], json: bool) -> None:
    if json:
        found = list(findings)
        print(as_json([_plain(each) for each in found]))
    else:
        found = _show(findings)
        print(_summary(found))
    if any(each.level is Level.PROBLEM for each in found):
        raise typer.Exit(1)


def _adopt(files: tuple[Path, ...], hosts: list[str] | None, json: bool) -> None:
    engines = Fleet.load(files).chosen(hosts)
    adopted = [server for engine in engines for server in owner.adopt(engine.host)]
    if json:
        print(as_json(adopted))
    elif adopted:
        table(("Adopted", "Id"), [(each.name, each.id) for each in adopted])
    else:
        print("every domain of Millpond's has its record: nothing to adopt")


def _probe(files: tuple[Path, ...], hosts: list[str] | None, guest: Path) -> None:
    engine = Fleet.load(files).engine(hosts[0] if hosts else "")
    found = probe_kvm(engine.libvirtd, guest)
    match found.verdict:
        case Verdict.ABSENT:
            print(f"there is no {KVM}: servers run by plain emulation; nothing is changed")
        case Verdict.CLOSED:
            finding = kvm.closed(engine.libvirtd)
            print(f"{finding.what}; nothing is changed\n  do: {finding.do}")
        case Verdict.USABLE:
            print(f"KVM runs {guest}; nothing is changed")
        case Verdict.UNUSABLE:
            print(f"KVM is not usable: {guest} runs without it, but with it {found.reason}")
            _leave_kvm(engine, files)


def _leave_kvm(engine: Engine, files: tuple[Path, ...]) -> None:
    if engine.settings.libvirt.virt_type is VirtTypeOption.QEMU:
        print("virt_type is qemu already; nothing is changed")
        return
    change = option_file.plan_change(files, "libvirt", "virt_type", VirtTypeOption.QEMU)
    print(f"will set {change}")
    option_file.make_change(change)


def _show(findings: Iterable[Finding]) -> list[Finding]:
    """Each as soon as it is found: mending may take a while."""
    console = Console(highlight=False)
    marked = console.is_terminal and console.encoding.startswith("utf")
    width = console.width if console.is_terminal else sys.maxsize
    shown = []
    for each in findings:
        mark, style = _MARKS[each.level] if marked else (f"{each.level:<{_LEVEL_WIDTH}}", "")
        text = Text("\n".join(_lines(each, mark, width)))
        text.stylize(style, 0, len(mark))
        console.print(text, soft_wrap=True)
        shown.append(each)
    return shown


def _lines(finding: Finding, mark: str, width: int) -> Iterator[str]:
    """The sentence, and what to do below it, each under its own beginning."""
    start = f"{mark} {finding.check:<{_CHECK_WIDTH}} "
    where = f"{finding.host}: " if finding.host not in ("", LOCAL) else ""
    yield from _wrapped(where + finding.what, start, width)
    for number, line in enumerate(finding.do.splitlines()):
        yield from _wrapped(
            line.strip(), " " * len(start) + ("  do: ", "      ")[number > 0], width
        )


def _wrapped(text: str, start: str, width: int) -> list[str]:
    """A long path stays in one piece, so that it can be copied."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _summary(found: list[Finding]) -> str:
    counts = Counter(each.level for each in found)
    problems, warnings, unknown = (
        counts[level] for level in (Level.PROBLEM, Level.WARNING, Level.UNKNOWN)
    )
    parts = [counted(problems, "problem") if problems else "no problem"]
    if warnings:
        parts.append(counted(warnings, "warning"))
    if unknown:
        parts.append(f"{unknown} not looked at")
    return ", ".join(parts)


def _plain(finding: Finding) -> dict[str, object]:
    return {
        "check": finding.check,
        "host": finding.host,
        "level": finding.level,
        "what": finding.what,
        "do": finding.do,
        "mendable": finding.mend is not None,
    }
