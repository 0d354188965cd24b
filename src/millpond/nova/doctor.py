"""millpond-nova-doctor: what is wrong with the disks of this host's instances, and repairing it.

It reads Nova's database as nova-compute does, through the conductor, and may run alongside it.
"""

import argparse
import sys
from dataclasses import replace

from millpond.doctor import report
from millpond.doctor.examination import examine_host
from millpond.doctor.finding import Finding
from millpond.errors import MillpondError
from millpond.nova import program, wiring  # the first: it sets up threads as Nova has them
from millpond.nova.advice import reword_for_nova
from millpond.nova.checks import CHECKS


def main() -> None:
    asked, rest = _parser().parse_known_args()
    try:
        program.configure([sys.argv[0], *rest])
        found = examine_host(wiring.host(), CHECKS, repair=asked.repair)
        sys.exit(report.tell(map(_reword, found), as_json=asked.json))
    except MillpondError as error:
        program.fail("millpond-nova-doctor", error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="millpond-nova-doctor",
        allow_abbrev=False,
        description="Look for what is wrong with the disks of this host's instances.",
        epilog="Other options are nova-compute's: --config-file FILE, repeatable.",
    )
    parser.add_argument(
        "--repair", "--mend", dest="repair", action="store_true", help="repair what can be"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _reword(finding: Finding) -> Finding:
    return replace(finding, do=reword_for_nova(finding.do))


if __name__ == "__main__":
    main()
