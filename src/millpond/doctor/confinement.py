"""Are image tools confined to the files that they are handed?"""

from collections.abc import Iterator

from millpond.doctor.finding import Finding, ok, warning
from millpond.errors import ToolFailed
from millpond.hosts.host import Host
from millpond.system.process import Handed, run

_OF_ANOTHER = "/etc/passwd"
"""A file that everybody may read, and that no tool is handed."""


def look(_host: Host) -> Iterator[Finding]:
    """Tried, as a tool would."""
    run(["true"], handed=Handed())
    try:
        run(["cat", _OF_ANOTHER], handed=Handed())
    except ToolFailed:
        yield ok("image tools see only the files that they are handed")
    else:
        yield warning(
            "image tools can open files of others: namespaces and Landlock are both refused here",
            "allow CAP_SYS_ADMIN (root) or user namespaces, or boot with lsm=landlock,…",
        )
