"""millpond explain …"""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from millpond.cli.hosts import HostNames, ask_hosts
from millpond.cli.output import as_json, details
from millpond.cli.server_migrate import show_decision
from millpond.cli.verdicts import plain, show_verdicts
from millpond.disks.explain import BootFile, Explanation, TemplateStatus, explain
from millpond.errors import BadOption, ImageNotFound, NotFound
from millpond.hosts.cache import has_template, preview_link
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.model.boot_images import find_boot_images
from millpond.model.flavors import choose_flavor
from millpond.model.image import Image
from millpond.model.server import Server
from millpond.model.sizes import format_size
from millpond.servers import across_hosts
from millpond.servers.create import ServerRequest
from millpond.servers.migrate import MigrateRequest, decide, find_live_obstacle


def command(
    ctx: typer.Context,
    image: Annotated[
        str,
        typer.Argument(metavar="IMAGE|SERVER", help="Name, id, or beginning of it."),
    ],
    flavor: Annotated[str, typer.Option(help="For a server of this flavour.")] = "",
    host: HostNames = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what would become of an image on each host, or of a server that moves, and why."""
    deployment = Deployment.load(ctx.obj.config_files)
    try:
        found = deployment.images.get(image, shortened=True)
    except ImageNotFound:
        if not (server := _find_server(deployment, image)):
            raise
        _explain_move(deployment, server, host, json)
        return
    explained = [
        each for _, each in ask_hosts(deployment, host, lambda host: _explain(host, found))
    ]
    size = choose_flavor(deployment.settings.flavors, flavor, None, {})
    decision = across_hosts.decide(deployment, ServerRequest(name="any", image=found, flavor=size))
    if json:
        verdicts = plain(decision) if decision else []
        print(as_json({"hosts": explained, "verdicts": verdicts}))
        return
    for each in explained:
        _show(each, [("Host", each.host)] if deployment.has_several else [])
        if each is not explained[-1] or decision:
            print()
    if decision:
        show_verdicts(decision.verdicts)


def _find_server(deployment: Deployment, name: str) -> Server | None:
    with suppress(NotFound):
        return deployment.server(name, shortened=True)
    return None


def _explain_move(
    deployment: Deployment, server: Server, hosts: list[str] | None, json: bool
) -> None:
    if len(hosts or ()) > 1:
        raise BadOption("--host", "a server moves to one host", "name one, or none")
    where = hosts[0] if hosts else ""
    decision = decide(deployment, server, MigrateRequest(host=where, stop=True))
    show_decision(server, decision, json, find_live_obstacle(deployment, server, where))


def _explain(host: Host, image: Image) -> Explanation:
    boot = find_boot_images(image.format, image.properties, host.images.get)
    status = TemplateStatus(
        is_prepared=partial(has_template, host),
        preview_link=partial(preview_link, host),
        is_local=host.images.local_file(image) is not None and host.seems_local,
    )
    selection = host.settings.libvirt.selection
    return replace(explain(image, boot, selection, status), host=host.name)


def _show(explanation: Explanation, where: list[tuple[str, str]]) -> None:
    how = _how(explanation)
    details(
        [
            *where,
            ("Image", explanation.image),
            ("Format", f"{explanation.declared}, and its bytes are {explanation.proven}"),
            ("Backend", f"{explanation.backend}, because {explanation.reason}"),
            ("Template", f"{how}; {_there(explanation)}"),
            ("To read", f"{format_size(explanation.read)}, once for all disks"),
            ("To write", f"{format_size(explanation.written)} at the most, once for all disks"),
            ("Each disk", _describe_disk(explanation)),
            *((each.content.capitalize(), _describe_copy(each)) for each in explanation.boot),
        ]
    )


def _how(explanation: Explanation) -> str:
    if explanation.location:
        return f"linked to {explanation.location}"
    if explanation.streamed:
        return f"streamed from {explanation.streamed}: servers start before all of it is there"
    how = "as it is" if explanation.native else f"converted to {explanation.template_format}"
    why = explanation.not_linked or explanation.not_streamed
    return how + (f", downloaded, because {why}" if why else "")


def _describe_disk(explanation: Explanation) -> str:
    if explanation.disk_written:
        return f"a copy: {format_size(explanation.disk_written)} to write at the most"
    return "shares the template: only what its guest writes takes space"


def _describe_copy(file: BootFile) -> str:
    return f"a copy of {file.image} ({format_size(file.size)}) for each server; {_there(file)}"


def _there(made: Explanation | BootFile) -> str:
    how = "is there already" if made.template_exists else "has yet to be made"
    return f"{made.template} {how}"
