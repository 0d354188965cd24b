"""What a server's virtual machine has besides disks and networks."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Any

from millpond.errors import BadOption

LOOPBACK = "127.0.0.1"
_FIRST_PORT = 5900  # QEMU counts displays from there
_LAST_PORT = 65535
_VNC = re.compile(r"(?:(?P<address>\[[^\]]+\]|[^:]+):)?(?P<port>\d+|auto)")
_LONGEST_DESCRIPTION = 4096
_WORD = re.compile(r"[\w.+-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vnc:
    """A display in the network of the host."""

    address: str = LOOPBACK
    port: int = 0
    """0: one that libvirt finds free at each start."""

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port or 'auto'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """Empty is what Millpond or libvirt choose, or what somebody changed in the domain."""

    vnc: Vnc | None = None
    cpu: str = ""
    """A mode of libvirt's (host-model, host-passthrough, maximum), or the name of a model."""
    video: str = ""
    tpm: bool = False
    secure_boot: bool = False

    def facts(self, display: Vnc | None = None) -> list[tuple[str, str]]:
        """What was asked for, for people, with the display that there is now."""
        found = (
            ("VNC", str(display or self.vnc or "")),
            ("CPU", self.cpu),
            ("Video", self.video),
            ("TPM", "2.0" if self.tpm else ""),
            ("Secure boot", "yes" if self.secure_boot else ""),
        )
        return [(name, value) for name, value in found if value]


CPU_MODES = ("host-model", "host-passthrough", "maximum")


def parse_devices(
    *, vnc: str, cpu: str, video: str, tpm: bool | None, secure_boot: bool | None
) -> dict[str, Any]:
    """What the options ask for, by the names of the fields; the rest stays as it is. ``none`` and
    ``default`` take back what was asked for."""
    asked: dict[str, Any] = {}
    if vnc:
        asked["vnc"] = None if vnc == "none" else parse_vnc(vnc)
    if cpu:
        asked["cpu"] = "" if cpu == "default" else parse_word("--cpu", cpu)
    if video:
        asked["video"] = "" if video == "default" else parse_word("--video", video)
    if tpm is not None:
        asked["tpm"] = tpm
    if secure_boot is not None:
        asked["secure_boot"] = secure_boot
    return asked


def parse_vnc(text: str) -> Vnc:
    """``auto``, ``5901``, ``192.0.2.1:5901`` or ``[::1]:auto``."""
    found = _VNC.fullmatch(text)
    if not found:
        raise BadOption("--vnc", f"{text!r} is invalid", "write auto, 5901 or 192.0.2.1:5901")
    address, port = (found["address"] or LOOPBACK).strip("[]"), found["port"]
    try:
        ipaddress.ip_address(address)
    except ValueError as error:
        reason = f"{address!r} is not an IP address"
        raise BadOption("--vnc", reason, "write that of an interface of the host") from error
    if port == "auto":
        return Vnc(address=address)
    if not _FIRST_PORT <= int(port) <= _LAST_PORT:
        reason = f"port {port} is out of range"
        raise BadOption("--vnc", reason, f"write one from {_FIRST_PORT} to {_LAST_PORT}, or auto")
    return Vnc(address=address, port=int(port))


def check_description(text: str) -> str:
    if not text.replace("\n", "").isprintable() or len(text) > _LONGEST_DESCRIPTION:
        reason = f"{text[:20]!r}… cannot be a description"
        advised = f"write text of {_LONGEST_DESCRIPTION} characters at the most"
        raise BadOption("--description", reason, advised)
    return text


def parse_word(option: str, text: str) -> str:
    """A name that libvirt is asked for."""
    if not _WORD.fullmatch(text):
        raise BadOption(option, f"{text!r} is not a word", "write it as libvirt does")
    return text
