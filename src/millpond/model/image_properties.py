"""What the properties of an image ask of a server's hardware, by Glance's names."""

import re
from collections.abc import Collection, Mapping

from millpond.errors import BadOption
from millpond.model.image import disks_of
from millpond.model.server import TARGET_PREFIXES, Firmware

VIF_MODELS = ("virtio", "e1000", "e1000e", "rtl8139", "ne2k_pci", "pcnet", "vmxnet3")

_WORD = re.compile(r"[\w.+-]+")
_LONGEST_COMMAND_LINE = 2047  # COMMAND_LINE_SIZE in Linux, less the NUL at its end


def check_properties(properties: Mapping[str, str]) -> None:
    """Those that have an effect; any other may stand there."""
    firmware_of(properties)
    disk_bus_of(properties)
    vif_model_of(properties)
    machine_of(properties)
    command_line_of(properties)
    disks_of(properties)


def firmware_of(properties: Mapping[str, str]) -> Firmware:
    return Firmware(_one_of(properties, "hw_firmware_type", tuple(Firmware), Firmware.BIOS))


def disk_bus_of(properties: Mapping[str, str]) -> str:
    return _one_of(properties, "hw_disk_bus", TARGET_PREFIXES, "virtio")


def vif_model_of(properties: Mapping[str, str]) -> str:
    return _one_of(properties, "hw_vif_model", VIF_MODELS, "virtio")


def machine_of(properties: Mapping[str, str]) -> str:
    """Empty: none is asked for."""
    name = "hw_machine_type"
    value = properties.get(name, "")
    if value and not _WORD.fullmatch(value):
        reason = f"{value!r} is not a word"
        raise BadOption(f"image property {name}", reason, "write it as libvirt does")
    return value


def command_line_of(properties: Mapping[str, str]) -> str:
    """Of the kernel that the image names; empty: none is asked for."""
    name = "os_command_line"
    line = properties.get(name, "")
    if not line.isprintable() or len(line.encode()) > _LONGEST_COMMAND_LINE:
        reason = f"{line[:40]!r} cannot be the command line of a kernel"
        advised = f"write one line of {_LONGEST_COMMAND_LINE} bytes at the most"
        raise BadOption(f"image property {name}", reason, advised)
    return line


def _one_of(properties: Mapping[str, str], name: str, allowed: Collection[str], usual: str) -> str:
    value = properties.get(name, usual).strip().lower()
    if value not in allowed:
        raise BadOption(
            f"image property {name}", f"{value!r} is not known", f"allowed: {', '.join(allowed)}"
        )
    return value
