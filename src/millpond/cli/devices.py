"""Options for what a server's virtual machine has, and how that is shown."""

from dataclasses import replace
from typing import Annotated, Any

import typer

from millpond.model.devices import Devices, parse_vnc, parse_word
from millpond.model.server import Server

NONE = ("none", "default")
"""Words by which what was asked for is taken back."""

VncOption = Annotated[
    str,
    typer.Option(
        metavar="[ADDRESS:]PORT|auto",
        help="A VNC display; on 127.0.0.1 unless an address is given.",
    ),
]
CpuOption = Annotated[
    str, typer.Option(help="host-model, host-passthrough, maximum, or a model's name.")
]
VideoOption = Annotated[str, typer.Option(help="Video model, such as virtio, vga or none.")]
TpmOption = Annotated[
    bool | None, typer.Option("--tpm/--no-tpm", help="A TPM 2.0 by swtpm.", show_default=False)
]
DescriptionOption = Annotated[str | None, typer.Option(help="For people.", show_default=False)]


def asked_devices(*, vnc: str, cpu: str, video: str, tpm: bool | None) -> dict[str, Any]:
    """What was asked for, by the names of the record's fields; the rest stays as it is."""
    asked: dict[str, Any] = {}
    if vnc:
        asked["vnc"] = None if vnc == "none" else parse_vnc(vnc)
    if cpu:
        asked["cpu"] = "" if cpu in NONE else parse_word("--cpu", cpu)
    if video:
        asked["video"] = "" if video == "default" else parse_word("--video", video)
    if tpm is not None:
        asked["tpm"] = tpm
    return asked


def new_devices(*, secure_boot: bool, **asked: Any) -> Devices:
    return replace(Devices(secure_boot=secure_boot), **asked_devices(**asked))


def device_lines(server: Server) -> list[tuple[str, str]]:
    """For 'server show': only what was asked for."""
    devices = server.devices
    found = (
        ("Description", server.description),
        ("VNC", str(devices.vnc or "")),
        ("CPU", devices.cpu),
        ("Video", devices.video),
        ("TPM", "2.0" if devices.tpm else ""),
        ("Secure boot", "yes" if devices.secure_boot else ""),
    )
    return [(name, value) for name, value in found if value]
