"""millpond server set …"""

from typing import Annotated

import typer

from millpond.cli.devices import (
    CpuOption,
    DescriptionOption,
    LabelOption,
    MaxMemoryOption,
    MaxVcpusOption,
    NoLabelOption,
    SecureBootOption,
    TpmOption,
    VideoOption,
    VncOption,
)
from millpond.cli.server import Json, app, chosen, label, show_all
from millpond.cli.several import try_each
from millpond.errors import BadInput
from millpond.hosts.deployment import Deployment
from millpond.libvirt.domains import ON
from millpond.model.devices import check_description, parse_devices
from millpond.model.labels import parse_labels
from millpond.model.server import Server
from millpond.servers.settings import Changes, change


@app.command("set")
def set_(
    ctx: typer.Context,
    servers: Annotated[list[str], typer.Argument(metavar="SERVER...", help="Names or whole ids.")],
    autostart: Annotated[
        bool | None,
        typer.Option(
            "--autostart/--no-autostart",
            help="Start it with its host, if it ran before; default of a new server: yes.",
            show_default=False,
        ),
    ] = None,
    description: DescriptionOption = None,
    labels: LabelOption = None,
    no_labels: NoLabelOption = None,
    vnc: VncOption = "",
    cpu: CpuOption = "",
    video: VideoOption = "",
    tpm: TpmOption = None,
    max_vcpus: MaxVcpusOption = None,
    max_memory: MaxMemoryOption = "",
    secure_boot: SecureBootOption = None,
    json: Json = False,
) -> None:
    """Change what is recorded of servers. 'none' and 'default' take back what was asked for."""
    asked = parse_devices(vnc=vnc, cpu=cpu, video=video, tpm=tpm, secure_boot=secure_boot)
    check_description(description or "")
    changes = Changes(
        autostart=autostart,
        description=description,
        devices=asked,
        labels=parse_labels(labels or ()),
        no_labels=tuple(parse_labels(no_labels or ())),
        max_vcpus=max_vcpus,
        max_memory=max_memory,
    )
    if changes == Changes():
        raise BadInput("nothing is to be changed", "add an option of 'millpond server set --help'")
    deployment = Deployment.load(ctx.obj.config_files)
    found = chosen(deployment, servers)

    def act(server: Server) -> Server:
        host = deployment.host_of(server)
        changed = change(host, server, changes)
        other = (changed.devices, changed.flavor) != (server.devices, server.flavor)
        waits = other and host.domains.state(server.id) in ON
        if not json:
            print(f"changed {label(server)}{'; reboot it for that' if waits else ''}")
        return changed

    done, status = try_each(found, act)
    if json:
        show_all(deployment, done, json, alone=len(servers) == 1)
    raise typer.Exit(status)
