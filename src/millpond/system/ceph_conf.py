"""What a client of a Ceph cluster has to know: monitors and keyrings, from the configuration."""

import re
from configparser import ConfigParser, Error
from pathlib import Path

from millpond.errors import BadOption

USUAL = Path("/etc/ceph/ceph.conf")

_KEYRINGS = "/etc/ceph/$cluster.$name.keyring /etc/ceph/$cluster.keyring /etc/ceph/keyring"
"""Ceph's own choice (options/global.yaml.in)."""

Monitor = tuple[str, int | None]

# One monitor may have an address for each version of the protocol, between brackets; the first is
# the newer one. An IPv6 address stands between brackets, too.
_ENTRY = re.compile(r"\[(?=v\d:)(?P<group>[^\[\]]*(?:\[[^\]]*\][^\[\]]*)*)\]|(?P<one>[^,;\s]+)")
_ADDRESS = re.compile(
    r"(?:v\d:)?(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<name>[\w.-]+))(?::(?P<port>\d{1,5}))?(?:/\d+)?"
)


def monitors(path: Path | None) -> tuple[Monitor, ...]:
    """Hosts and ports, as libvirt wants them; the usual file if none is given."""
    path = path or USUAL
    text = _mon_host(path)
    found = tuple(_parse_entry(path, entry) for entry in _ENTRY.finditer(text))
    if not found:
        raise _bad(path, "it names no monitor", "write mon_host = ADDRESS, ADDRESS")
    return found


def files(path: Path | None, user: str) -> list[Path]:
    """What a client opens: the configuration and the keyrings that it may name."""
    path = path or USUAL
    parser = _parse(path)
    name = f"client.{user or 'admin'}"
    sections = [each for each in (name, "client", "global") if parser.has_section(each)]
    found = (parser.get(each, "keyring", fallback="") for each in sections)
    text = next(filter(None, found), _KEYRINGS)
    known = {"$cluster": "ceph", "$name": name, "$id": name[7:], "$type": "client"}
    for variable, value in known.items():
        text = text.replace(variable, value)
    return [path, *(Path(each) for each in re.split(r"[,;\s]+", text) if each.startswith("/"))]


class _CephParser(ConfigParser):
    def optionxform(self, optionstr: str) -> str:
        """Ceph takes a blank, a dash and an underscore in a name for the same."""
        return re.sub(r"[\s-]+", "_", optionstr.strip())


def _mon_host(path: Path) -> str:
    return _parse(path).get("global", "mon_host", fallback="")


def _parse(path: Path) -> ConfigParser:
    parser = _CephParser(interpolation=None, strict=False, delimiters=("=",))
    try:
        parser.read_string(path.read_text())
    except OSError as error:
        reason = error.strerror or str(error)
        raise _bad(path, reason, "name the file that clients of the cluster use") from error
    except (Error, ValueError) as error:
        raise _bad(path, "it cannot be read as Ceph's configuration") from error
    return parser


def _parse_entry(path: Path, entry: re.Match[str]) -> Monitor:
    first = (entry["one"] or entry["group"].split(",")[0]).strip()
    address = _ADDRESS.fullmatch(first)
    if not address:
        raise _bad(path, f"{first!r} is no address of a monitor")
    return address["v6"] or address["name"], int(address["port"]) if address["port"] else None


def _bad(path: Path, reason: str, advice: str = "") -> BadOption:
    return BadOption("[libvirt] images_rbd_ceph_conf", f"{path}: {reason}", advice)
