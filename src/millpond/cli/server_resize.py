"""millpond server resize"""

from contextlib import suppress
from typing import Annotated

import typer

from millpond.cli.output import transfer
from millpond.cli.server import Json, Name, app, label, show_server
from millpond.errors import BadInput, BadOption, MillpondError
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.model.flavors import find_flavor
from millpond.model.formats import DiskFormat
from millpond.model.server import Flavor, Server
from millpond.model.sizes import check_memory, parse_size
from millpond.servers import grow, revert
from millpond.servers import resize as resizing
from millpond.servers.resize import Sizes


@app.command()
def resize(
    ctx: typer.Context,
    server: Name,
    disk: Annotated[str, typer.Option(help="The root disk's new size, such as 20G.")] = "",
    vcpus: Annotated[int | None, typer.Option(min=1, max=1024, help="Virtual CPUs.")] = None,
    memory: Annotated[str, typer.Option(help="Such as 512M or 2G.")] = "",
    flavor: Annotated[
        str, typer.Option(help="A flavour of the configuration: its vCPUs, memory and root disk.")
    ] = "",
    revertable: Annotated[
        bool,
        typer.Option("--revertable", help="Keep sizes and root disk until --confirm or --revert."),
    ] = False,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Remove what was kept: it stays resized.")
    ] = False,
    revert_: Annotated[
        bool,
        typer.Option("--revert", help="Restore what was kept; what was written since is lost."),
    ] = False,
    json: Json = False,
) -> None:
    """Change a server's sizes. Its root disk only grows, also while it runs, unless it is a ploop
    one. vCPUs and memory go up and down; while it runs, vCPUs only up, and both up to --max-vcpus
    and --max-memory of 'server set'. --revertable and --revert need a server that is off."""
    asked = bool(disk or vcpus or memory or flavor)
    if asked + confirm + revert_ != 1 or (revertable and not asked):
        alone = "--confirm and --revert stand alone"
        advised = "add --disk, --vcpus, --memory or --flavor; or only --confirm or --revert"
        raise BadInput(alone if confirm or revert_ else "no size was said", advised)
    sizes = Sizes(vcpus=vcpus or 0, memory=parse_size(memory) if memory else 0)
    size = parse_size(disk) if disk else None
    if memory:
        check_memory(sizes.memory)
    deployment = Deployment.load(ctx.obj.config_files)
    host, found = deployment.find(server)
    if confirm or revert_:
        done = (revert.confirm if confirm else revert.revert)(host, found)
        if not json:
            print(f"{'confirmed' if confirm else 'reverted'} the resize of {label(done)}")
    else:
        if flavor:
            wanted = find_flavor(deployment.settings.flavors, flavor)
            sizes, size = _with_flavor(found, wanted, sizes, size)
        done = _resize(host, found, revertable, sizes, size)
        if not json:
            print(f"resized {done.name}")
    if json:
        show_server(deployment, done, json)


def _with_flavor(
    server: Server, flavor: Flavor, sizes: Sizes, disk: int | None
) -> tuple[Sizes, int | None]:
    """With what is said besides. A root disk that is large enough already stays as it is, if the
    flavour does not say a size."""
    own = server.flavor
    for name in ("ephemeral", "swap", "extra_specs"):
        if getattr(flavor, name) != getattr(own, name):
            reason = f"flavour {flavor.name!r} has another {name} than server {server.name!r}"
            advised = "use --vcpus, --memory and --disk, or create another server"
            raise BadOption("--flavor", f"{reason}, which stays as it was made", advised)
    wanted = Sizes(
        vcpus=sizes.vcpus or flavor.vcpus,
        memory=sizes.memory or flavor.memory,
        flavor=flavor.name,
    )
    return wanted, (flavor.disk or None) if disk is None else disk


def _resize(
    host: Host, server: Server, revertable: bool, sizes: Sizes, disk: int | None
) -> Server:
    """What cannot be is refused before anything is changed; one that fails leaves nothing of what
    was kept for it."""
    if disk is not None and (revertable or sizes != Sizes()):
        grow.check_grow(host, server, "disk", disk)
    if revertable:
        resizing.check_resize(host, server, sizes)
        root = server.get_disk()
        size = root.size if root.format is DiskFormat.RAW else None  # else a file of any length
        with transfer(f"root disk of {server.name}", lambda: size) as progress:
            server = revert.save(host, server, progress)
    try:
        if sizes != Sizes():
            server = resizing.resize(host, server, sizes)
        return server if disk is None else grow.grow(host, server, "disk", disk)
    except MillpondError:
        if revertable:
            with suppress(MillpondError):
                revert.revert(host, server)
        raise
