"""millpond server migrate"""

import sys
from typing import Annotated, Any

import typer

from millpond.cli.hosts import Destination
from millpond.cli.output import as_json, details, steps, table
from millpond.cli.server import PATIENCE, Json, Name, app
from millpond.cli.verdicts import plain, show_verdicts
from millpond.errors import BadOption
from millpond.hosts.deployment import Deployment
from millpond.libvirt.migration import LiveOptions
from millpond.model.server import Server
from millpond.model.sizes import format_size
from millpond.servers.live_migrate import abort as abort_move
from millpond.servers.migrate import Migrated, MigrateRequest, MoveDecision, decide
from millpond.servers.migrate import migrate as move
from millpond.servers.move_plan import MovePlan, Travel


@app.command()
def migrate(
    ctx: typer.Context,
    server: Name,
    host: Destination = "",
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop it if it runs, and start it again there.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --stop: power off at once.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="With --stop, seconds that the guest has to power itself off (60); with --live, "
            "seconds after which the migration is given up, unless its post-copy has begun.",
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Move it while it runs: its guest is not stopped.")
    ] = False,
    auto_converge: Annotated[
        bool,
        typer.Option(
            "--auto-converge",
            help="With --live: slow down a guest that writes faster than it is copied.",
        ),
    ] = False,
    post_copy: Annotated[
        bool,
        typer.Option(
            "--post-copy",
            help="With --live: let the guest run there before all its memory has come. "
            "If a host is lost then, so is the guest's memory.",
        ),
    ] = False,
    abort: Annotated[
        bool, typer.Option("--abort", help="End a live migration that is under way.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say where it would go, and what would travel.")
    ] = False,
    json: Json = False,
) -> None:
    """Move a server to another host. All its disks go with it; with --live it runs meanwhile."""
    if not live and (auto_converge or post_copy):
        option = "--auto-converge" if auto_converge else "--post-copy"
        raise BadOption(option, "it is for a server that moves while it runs", "add --live")
    if force and not (stop or live or abort):
        raise BadOption("--force", "it is for a server that is stopped first", "add --stop")
    if live:
        _refuse_beside("--live", {"--stop": stop, "--force": force, "--abort": abort})
    if abort:
        cold = {"--stop": stop, "--force": force, "--timeout": timeout is not None}
        _refuse_beside("--abort", {"--host": bool(host), **cold, "--dry-run": dry_run})
        _abort(ctx, server, json)
        return
    plans: list[MovePlan] = []
    shown = steps(f"moving {server}", lambda: _bytes(plans[-1], live) if plans else None)
    with shown as (watch, progress):
        deployment = Deployment.load(ctx.obj.config_files, watch)
        found = deployment.server(server)
        request = MigrateRequest(
            host=host,
            stop=stop,
            patience=0 if force else timeout or PATIENCE,
            tell=lambda what: print(what, file=sys.stderr),
            planned=plans.append,
            progress=progress,
            live=LiveOptions(
                auto_converge=auto_converge, post_copy=post_copy, patience=timeout or 0
            )
            if live
            else None,
        )
        if not dry_run:
            moved = move(deployment, found, request)
    if not dry_run:
        _show_move(moved, json)
        return
    decision = decide(deployment, found, request)
    show_decision(found, decision, json)
    if decision.plan is None:
        raise decision.decision.no_valid_host()


def _refuse_beside(chosen: str, others: dict[str, bool]) -> None:
    for option in (each for each, given in others.items() if given):
        raise BadOption(option, f"it does not go with {chosen}", "choose one of them")


def _bytes(plan: MovePlan, live: bool) -> int:
    """That travel at the most, as far as anybody knows."""
    return plan.size + (plan.server.flavor.memory if live else 0)


def _abort(ctx: typer.Context, name: str, json: bool) -> None:
    deployment = Deployment.load(ctx.obj.config_files)
    server = abort_move(deployment, deployment.server(name))
    if json:
        print(as_json({"server": server.id, "host": server.host}))
    else:
        details([("Server", f"{server.name} ({server.id})"), ("Host", server.host)])


def show_decision(
    server: Server, found: MoveDecision, json: bool, live_obstacle: str | None = None
) -> None:
    """Every host with its verdict, and what would travel to the best one; and if it was asked,
    what keeps it from moving while it runs."""
    plan = found.plan
    if json:
        told = _plain(server, plan) if plan else {"server": server.id, "host": None}
        asked = {} if live_obstacle is None else {"live_obstacle": live_obstacle}
        print(as_json({**told, "verdicts": plain(found.decision), **asked}))
    else:
        show_verdicts(found.decision.verdicts)
    if plan and not json:
        print()
        table(("Disk", "Way", "Bytes", "Template"), [_row(each) for each in plan.travels])
    if live_obstacle is not None and not json:
        print(f"\nWhile it runs (--live): {live_obstacle or 'yes'}")


def _show_move(moved: Migrated, json: bool) -> None:
    server = moved.server
    if json:
        told = _plain(server, moved.plan) if moved.plan else {"server": server.id}
        where = {"host": server.host, "source": moved.source}
        print(as_json({**told, **where, "moved": moved.moved, **describe_idle(moved)}))
        return
    details(
        [
            ("Server", f"{server.name} ({server.id})"),
            ("Host", server.host),
            ("Moved", format_size(moved.moved)),
            *((name.title(), f"{idle:.3f} s") for name, idle in describe_idle(moved).items()),
        ]
    )


def describe_idle(moved: Migrated) -> dict[str, float]:
    """How long the guest did nothing, by what it did instead; empty of one that did not run."""
    what = "pause" if moved.live else "off"
    return {what: round(moved.idle, 3)} if moved.idle else {}


def _plain(server: Server, plan: MovePlan) -> dict[str, Any]:
    return {
        "server": server.id,
        "host": plan.server.host,
        "bytes": plan.size,
        "disks": plan.travels,
    }


def _row(travel: Travel) -> tuple[str, ...]:
    prepared = f"{travel.template}, {format_size(travel.template_size)}" if travel.template else ""
    return travel.role, travel.way, format_size(travel.size), prepared
