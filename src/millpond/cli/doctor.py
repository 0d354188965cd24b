"""millpond doctor"""

from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.hosts import HostNames
from millpond.cli.output import as_json, table
from millpond.cli.probe import GUEST, ProbeResult, probe_kvm
from millpond.config import VirtTypeOption, option_file
from millpond.doctor import kvm, report
from millpond.doctor.examination import examine, examine_placement
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.libvirt.virtualization import KVM
from millpond.servers import recover


def command(
    ctx: typer.Context,
    repair: Annotated[bool, typer.Option("--repair", help="Repair what can be.")] = False,
    mend: Annotated[bool, typer.Option("--mend", hidden=True)] = False,
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
    host: HostNames = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look for what is wrong on the hosts and say what to do about it."""
    files: tuple[Path, ...] = ctx.obj.config_files
    repair = repair or mend  # its name until now
    if probe:
        _probe(files, host, guest.expanduser(), json)
    elif adopt:
        _adopt(files, host, json)
    elif placement:
        raise typer.Exit(report.tell(examine_placement(files, repair=repair), as_json=json))
    else:
        raise typer.Exit(report.tell(examine(files, host, repair=repair), as_json=json))


def _adopt(files: tuple[Path, ...], hosts: list[str] | None, json: bool) -> None:
    chosen = Deployment.load(files).select(hosts)
    adopted = [server for host in chosen for server in recover.rebuild_records(host)]
    if json:
        print(as_json(adopted))
    elif adopted:
        table(("Adopted", "Id"), [(each.name, each.id) for each in adopted])
    else:
        print("every domain of Millpond's has its record: nothing to adopt")


def _probe(
    files: tuple[Path, ...], hosts: list[str] | None, guest: Path, json: bool = False
) -> None:
    host = Deployment.load(files).host(hosts[0] if hosts else "")
    found = probe_kvm(host.libvirtd, guest)
    if json:  # for scripts: nothing is changed
        print(as_json({"verdict": found.verdict, "reason": found.reason}))
        return
    match found.verdict:
        case ProbeResult.ABSENT:
            print(f"there is no {KVM}: servers run under emulation (TCG); nothing is changed")
        case ProbeResult.CLOSED:
            finding = kvm.describe_closed(host.libvirtd)
            print(f"{finding.what}; nothing is changed\n  do: {finding.do}")
        case ProbeResult.USABLE:
            print(f"KVM runs {guest}; nothing is changed")
        case ProbeResult.UNUSABLE:
            print(f"KVM is not usable: {guest} runs without it, but with it {found.reason}")
            _leave_kvm(host, files)


def _leave_kvm(host: Host, files: tuple[Path, ...]) -> None:
    if host.settings.libvirt.virt_type is VirtTypeOption.QEMU:
        print("virt_type is qemu already; nothing is changed")
        return
    change = option_file.plan_change(files, "libvirt", "virt_type", VirtTypeOption.QEMU)
    print(f"will set {change}")
    option_file.make_change(change)
