"""Options of 'server create' that say more than a word: networks, keys and user data."""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from millpond.config import Settings
from millpond.errors import BadOption, FileNotReadable
from millpond.model.server import Flavor, Network, NetworkKind
from millpond.model.sizes import parse_size
from millpond.servers.request import GuestConfiguration

_NETWORK = re.compile(r"[\w.+-]+")
_USER_DATA_LIMIT = 64 * 1024  # Nova's limit before encoding; a larger one belongs on a web server


def parse_network(text: str) -> Network | None:
    """``none``, ``user``, ``bridge:BR`` or the name of a libvirt network."""
    if text == "none":
        return None
    if text == "user":
        return Network(kind=NetworkKind.USER, mac=_new_mac())
    kind, colon, bridge = text.partition(":")
    if kind == "bridge" and colon and _NETWORK.fullmatch(bridge):
        return Network(kind=NetworkKind.BRIDGE, source=bridge, mac=_new_mac())
    if not _NETWORK.fullmatch(text):
        advice = "write none, user, bridge:BRIDGE or the name of a libvirt network"
        raise BadOption("--network", f"{text!r} is no network", advice)
    return Network(kind=NetworkKind.NETWORK, source=text, mac=_new_mac())


def read_guest_configuration(
    hostname: str, keys: Sequence[Path], user_data: Path | None
) -> GuestConfiguration:
    content = _read(user_data) if user_data else b""
    if len(content) > _USER_DATA_LIMIT:
        limit = f"{_USER_DATA_LIMIT // 1024} KiB"
        raise BadOption("--user-data", f"{user_data} is larger than {limit}", "shorten it")
    return GuestConfiguration(
        hostname=hostname, keys=tuple(_read_public_key(each) for each in keys), user_data=content
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileNotReadable(path, error.strerror or str(error)) from error


def _read_public_key(path: Path) -> str:
    text = _read(path).decode(errors="replace").strip()
    if "PRIVATE KEY" in text:
        raise BadOption("--ssh-key", f"{path} is a private key", f"give {path}.pub")
    if not text.startswith(("ssh-", "ecdsa-", "sk-")):
        raise BadOption("--ssh-key", f"{path} holds no public key", "give the file ending in .pub")
    return text


def _new_mac() -> str:
    """In QEMU's own range, 52:54:00."""
    return "52:54:00:" + ":".join(f"{each:02x}" for each in secrets.token_bytes(3))


_UNITS = {"memory": "m", "disk": "g", "ephemeral": "g", "swap": "m"}
"""What a bare number counts, as in Nova."""


def chosen_flavor(
    settings: Settings, name: str, vcpus: int | None, sizes: Mapping[str, str]
) -> Flavor:
    """The named one, or the default, with what was said besides."""
    if name and name not in settings.flavors:
        known = ", ".join(sorted(settings.flavors)) or "none is configured"
        raise BadOption("--flavor", f"there is no flavour {name!r}", f"known: {known}")
    flavor = settings.flavors[name] if name else Flavor()
    said = {key: parse_size(text, unit=_UNITS[key]) for key, text in sizes.items() if text}
    if said.get("memory") == 0:
        raise BadOption("--memory", "a server needs some", "write such as 512M")
    return Flavor(**(asdict(flavor) | said | {"vcpus": vcpus or flavor.vcpus}))
