"""Whether a host can give a server the devices that are asked for."""

from collections.abc import Collection
from ipaddress import ip_address

from millpond.errors import BadOption, ExceedsHost
from millpond.hosts.host import Host
from millpond.libvirt.virtualization import find_machine
from millpond.model.devices import CPU_MODES, Devices, Vnc
from millpond.model.server import Firmware, Hardware
from millpond.xml.host import DomainCapabilitiesXml


def check_devices(host: Host, devices: Devices, hardware: Hardware, server: str = "") -> None:
    """Of a server that is there, its id: its own port is not taken by another."""
    if devices.vnc and devices.vnc.port:
        _check_port(host, devices.vnc, server)
    offered = find_machine(host.libvirtd, hardware.virt_type, hardware.machine)
    if offered is None:
        return
    if devices.video:
        _check_one_of(host, "--video", devices.video, [each.text for each in offered.videos])
    if devices.cpu:
        _check_cpu(host, devices.cpu, offered)
    if devices.tpm and "emulator" not in [each.text for each in offered.tpm_backends]:
        reason = f"host {host.name!r} has no swtpm, which emulates TPMs"
        raise ExceedsHost("--tpm", reason, "install swtpm and swtpm-tools there")
    if devices.secure_boot:
        _check_secure_boot(host, hardware, offered)


def _check_port(host: Host, vnc: Vnc, server: str) -> None:
    for each in host.records.all():
        other = each.devices.vnc
        if each.id != server and other and other.port == vnc.port and _overlap(vnc, other):
            reason = f"port {vnc.port} is that of server {each.name!r}"
            raise ExceedsHost("--vnc", reason, "write another one, or auto")


def _overlap(one: Vnc, other: Vnc) -> bool:
    addresses = [ip_address(one.address), ip_address(other.address)]
    return addresses[0] == addresses[1] or any(each.is_unspecified for each in addresses)


def _check_cpu(host: Host, cpu: str, offered: DomainCapabilitiesXml) -> None:
    if cpu in CPU_MODES:
        supported = [each.name for each in offered.cpu_modes if each.supported == "yes"]
        _check_one_of(host, "--cpu", cpu, supported)
        return
    models = [
        each.name for mode in offered.cpu_modes if mode.name == "custom" for each in mode.models
    ]
    _check_one_of(host, "--cpu", cpu, models)


def _check_one_of(host: Host, option: str, word: str, offered: Collection[str]) -> None:
    if offered and word not in offered:
        reason = f"host {host.name!r} does not offer {word!r} to such a server"
        raise ExceedsHost(option, reason, f"it offers {', '.join(sorted(offered))}")


def _check_secure_boot(host: Host, hardware: Hardware, offered: DomainCapabilitiesXml) -> None:
    if hardware.firmware is not Firmware.UEFI or "q35" not in hardware.machine:
        reason = f"it needs UEFI on a q35 machine, not {hardware.firmware} on {hardware.machine}"
        raise BadOption(
            "--secure-boot",
            reason,
            "that is chosen when a server is made: create one with --secure-boot",
        )
    if "yes" not in [each.text for each in offered.secure]:
        reason = f"the firmware of host {host.name!r} lacks it"
        advised = "install an OVMF that has it (Debian and Ubuntu: ovmf)"
        raise ExceedsHost("--secure-boot", reason, advised)
