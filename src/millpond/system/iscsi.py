"""This host's name for iSCSI targets."""

import re
from pathlib import Path

_FILE = Path("/etc/iscsi/initiatorname.iscsi")


def initiator_name(host: str) -> str:
    """Open-iSCSI's where it is installed, so that targets know one name of a host."""
    try:
        found = re.search(r"^\s*InitiatorName\s*=\s*(\S+)", _FILE.read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else f"iqn.2026-11.dev.millpond:{host}"
