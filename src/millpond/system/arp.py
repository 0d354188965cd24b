"""This machine's ARP table."""

from pathlib import Path

_TABLE = Path("/proc/net/arp")
_COMPLETE = 0x2  # ATF_COM in Linux


def read_arp_table() -> dict[str, tuple[str, ...]]:
    """Addresses by MAC; nothing where there is no such table."""
    try:
        lines = _TABLE.read_text().splitlines()[1:]
    except OSError:
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for address, _type, flags, mac, *_ in map(str.split, lines):
        if int(flags, 16) & _COMPLETE:
            found[mac] = (*found.get(mac, ()), address)
    return found
