"""Options for what a server's virtual machine has."""

from typing import Annotated

import typer

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
SecureBootOption = Annotated[
    bool | None,
    typer.Option(
        "--secure-boot/--no-secure-boot",
        help="UEFI that boots only what is signed; without, as the host's UEFI does by itself.",
        show_default=False,
    ),
]
MaxVcpusOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=1024,
        help="So many vCPUs it can be given while it runs; 0: no more than it has.",
        show_default=False,
    ),
]
MaxMemoryOption = Annotated[
    str,
    typer.Option(help="So much memory it can be given while it runs; 0: no more than it has."),
]
LabelOption = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="Repeatable.")
]
NoLabelOption = Annotated[
    list[str] | None, typer.Option("--no-label", metavar="KEY", help="Remove it; repeatable.")
]
LabelFilter = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="KEY[=VALUE]", help="Only with this label; repeatable."),
]
DescriptionOption = Annotated[str | None, typer.Option(help="For people.", show_default=False)]
