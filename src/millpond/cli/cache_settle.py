"""millpond cache settle: apart from its siblings, because it loads what moves servers."""

import typer

from millpond.cli.cache import Json, Names, app
from millpond.cli.hosts import HostNames
from millpond.cli.output import as_json
from millpond.errors import Conflict, Tool
from millpond.hosts.cache import find_status, get_templates
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.model.template import Template
from millpond.servers import settle as settling
from millpond.servers.streams import resume_waiting


@app.command()
def settle(ctx: typer.Context, names: Names, host: HostNames = None, json: Json = False) -> None:
    """Publish templates that have arrived. Running servers read their files then. Guests that had
    to wait go on. The process that fetches a template does so by itself."""
    deployment = Deployment.load(ctx.obj.config_files)
    done = [
        (each, template)
        for each in deployment.select(host)
        for name in names
        for template in get_templates(each, name)
    ]
    left = {name for each, template in done for name in _settle(each, template)}
    if left:
        raise Conflict(
            f"servers still read from a stream, or wait for it: {', '.join(sorted(left))}",
            f"this is tried again by itself; '{Tool.DOCTOR}' may say more",
        )
    if json:
        print(as_json([_plain(each, template) for each, template in done]))
        return
    for each, template in done:
        found = find_status(each, get_templates(each, template.volume)[0])
        state = f"is {found.summary}" if found else "is in the cache"
        print(f"template {template.volume} {state}")


def _settle(host: Host, template: Template) -> list[str]:
    """Names of servers that could not be moved, or do not go on."""
    name = template.volume
    host.handlers.streaming.settle(name)
    waiting = resume_waiting(host, name)
    (found,) = get_templates(host, name)
    return [*waiting, *(() if found.streams else settling.settle_all(host, name))]


def _plain(host: Host, template: Template) -> dict[str, object]:
    (found,) = get_templates(host, template.volume)
    return {"host": host.name, "template": found, "streams": find_status(host, found)}
