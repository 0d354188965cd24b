"""millpond-nova-transition: the disks that Nova's own driver made on this host, into the pools and
back, for instances that are off. nova-compute may run meanwhile: it waits for an instance that is
being moved, and one that Nova does something with is left alone.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import nova.cmd.compute  # the first: it sets up threads as Nova has them
import nova.conf
from nova import exception
from nova.compute import vm_states
from oslo_messaging import MessagingException

from millpond.errors import (
    BadInput,
    Busy,
    MillpondError,
    NotFound,
    ServiceProblem,
    Tool,
    Unsupported,
)
from millpond.hosts.host import Host
from millpond.legacy.disk import LegacyDisk
from millpond.model.names import ServerId, printable
from millpond.model.server import Server
from millpond.model.sizes import format_size
from millpond.nova import giving_back, program, transition, wiring
from millpond.nova.records import InstanceRecords
from millpond.nova.transition import Found, describe
from millpond.nova.transition_journal import is_begun
from millpond.servers.transition import refresh_pools
from millpond.servers.transition_plan import bytes_to_copy

_NAME = "millpond-nova-transition"
_OFF = (vm_states.STOPPED, vm_states.SHELVED, vm_states.SOFT_DELETED, vm_states.ERROR)
_NONE = "no server on this host has disks that Nova's own driver made"


def main() -> None:
    asked = _parser().parse_args()
    files = [word for each in asked.config_file for word in ("--config-file", each)]
    try:
        program.configure([sys.argv[0], *files])
        sys.exit(asked.act(wiring.host(), asked))
    except MessagingException as error:
        problem = ServiceProblem(
            f"Nova does not answer: {error}", "see whether its conductor runs"
        )
        program.fail(_NAME, problem)
    except MillpondError as error:
        program.fail(_NAME, error)


def _parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    options.add_argument("--json", action="store_true", help="print JSON")
    options.add_argument(
        "--config-file",
        action="append",
        default=[],
        metavar="FILE",
        help="as nova-compute's; repeatable",
    )
    several = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    several.add_argument("instances", nargs="*", metavar="INSTANCE", help="by id or name")
    several.add_argument("--all", action="store_true", help="all that are off")
    parser = argparse.ArgumentParser(
        prog=_NAME,
        allow_abbrev=False,
        description="Move disks between the layout of Nova's own driver and the storage pools.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, act: Callable[..., int], words: str, *parents: Any) -> Any:
        made = commands.add_parser(
            name, parents=[options, *parents], help=words, description=words, allow_abbrev=False
        )
        made.set_defaults(act=act)
        return made

    command("status", _status, "List servers with disks that Nova's own driver made.")
    run = command("run", _run, "Bring the disks of servers that are off into the pools.", several)
    run.add_argument("--dry-run", action="store_true", help="say what would be done")
    words = "Give servers that are off back to Nova's own driver."
    command("revert", _revert, words, several)
    return parser


def _status(host: Host, asked: argparse.Namespace) -> int:
    found = transition.find_all(host, transition.instances_of(host))
    if asked.json:
        print(json.dumps([_plain(host, each) for each in found], indent=2))
        return 0
    for number, each in enumerate(found):
        print(printable("\n".join((*([""] if number else []), *_lines(host, each))), keep="\n"))
    if not found:
        print(_NONE)
    return 0


def _plain(host: Host, found: Found) -> dict[str, Any]:
    return {
        **_named(found.instance),
        "state": found.instance.vm_state,
        "task": found.instance.task_state or "",
        "interrupted": found.begun,
        "disks": [
            {
                "role": each.role,
                "path": each.path,
                "layout": each.layout or "",
                "format": each.format or "",
                "size": each.size,
                "base": each.base.volume if each.base else "",
            }
            for each in found.disks
        ],
        "in_the_way": _in_the_way(host, found),
    }


def _lines(host: Host, found: Found) -> Iterator[str]:
    instance = found.instance
    yield f"Server      {describe(instance)}"
    yield f"State       {instance.task_state or instance.vm_state}"
    if found.begun:
        yield f"Interrupted its disks were being moved; '{_NAME} run {instance.uuid}' ends that"
    yield from (f"Disk        {_describe(each)}" for each in found.disks)
    yield from (f"In the way  {each}" for each in _in_the_way(host, found))


def _in_the_way(host: Host, found: Found) -> tuple[str, ...]:
    """With what a plan finds."""
    if found.obstacles or found.begun:
        return found.obstacles
    try:
        transition.plan(host, found)
    except MillpondError as error:
        return (str(error),)
    return ()


def _describe(disk: LegacyDisk) -> str:
    size = format_size(disk.size) if disk.size is not None else "of unknown size"
    backed = f", backed by {disk.base.volume}" if disk.base else ""
    return f"{disk.role}: {size} {disk.format or 'of unknown format'}, {disk.path}{backed}"


def _run(host: Host, asked: argparse.Namespace) -> int:
    moved: list[Server] = []

    def move(instance: Any) -> tuple[int, int]:
        _refuse_busy(instance)
        if transition.is_on(host, instance) or instance.vm_state not in _OFF:
            raise _runs(instance)
        if not asked.dry_run:
            transition.settle(host, instance)
        found = transition.find(host, instance)
        if found is None:
            return 0, 0
        planned = transition.plan(host, found)
        copied = bytes_to_copy(host, planned.details)
        if not asked.dry_run:
            transition.move(host, instance, planned)
            moved.append(planned.details.after(planned.server))
        return planned.disks, copied

    every = transition.instances_of(host)
    concerned = [each.instance for each in transition.find_all(host, every)]
    chosen = _choose(every, concerned, asked)
    said = "would move the disks of {}" if asked.dry_run else "moved the disks of {}"
    status = _each(host, chosen, move, said, asked)
    refresh_pools(host, moved)  # once for all
    return status


def _revert(host: Host, asked: argparse.Namespace) -> int:
    giving_back.refuse_unknown_driver(host)

    def give_back(instance: Any) -> tuple[int, int]:
        _refuse_busy(instance)
        if transition.is_on(host, instance) or instance.vm_state not in _OFF:
            what = f"giving server {instance.display_name!r} back to Nova"
            raise Unsupported(what, f"it is {instance.vm_state}", "stop it first")
        transition.settle(host, instance)
        if not InstanceRecords(instance).any():
            return 0, 0
        planned = giving_back.plan_back(host, instance)
        copied = bytes_to_copy(host, planned.details)
        giving_back.give_back(host, instance, planned)
        return planned.disks, copied

    every = transition.instances_of(host)
    ours = [each for each in every if InstanceRecords(each).any() or is_begun(each)]
    return _each(host, _choose(every, ours, asked), give_back, "gave {} back to Nova", asked)


def _runs(instance: Any) -> MillpondError:
    what = f"moving the disks of server {instance.display_name!r} now"
    reboot = f"'{Tool.TRANSITION} {instance.uuid}' moves them by the way"
    return Unsupported(what, f"it is {instance.vm_state}, and not off", reboot)


def _refuse_busy(instance: Any) -> None:
    if instance.task_state:
        raise Busy(f"server {describe(instance)}")


def _choose(every: Any, concerned: Sequence[Any], asked: argparse.Namespace) -> list[Any]:
    if asked.all == bool(asked.instances):
        raise BadInput("either instances or --all", f"'{_NAME} --help' says more")
    if asked.all:
        return list(concerned)
    return [_choose_one(every, each) for each in asked.instances]


def _choose_one(every: Any, word: str) -> Any:
    fitting = [each for each in every if word in (each.uuid, each.display_name)]
    if not fitting:
        raise _not_found(word)
    if len(fitting) > 1:
        raise BadInput(f"{len(fitting)} servers on this host are named {word!r}", "use their ids")
    return fitting[0]


def _not_found(word: str) -> NotFound:
    return NotFound(
        f"there is no server {word!r} on this host", "'openstack server list' shows all"
    )


def _each(
    host: Host,
    instances: Sequence[Any],
    act: Callable[[Any], tuple[int, int]],
    said: str,
    asked: argparse.Namespace,
) -> int:
    """The exit status is that of the first that failed."""
    results, status = [], 0
    for instance in instances:
        disks = copied = 0
        failure: MillpondError | None = None
        try:
            disks, copied = _alone(host, instance, act)
        except MillpondError as error:
            failure, status = error, status or error.exit_code
        results.append(
            {
                **_named(instance),
                "disks": disks,
                "copied": copied,
                "error": str(failure or ""),
            }
        )
        if failure:
            program.complain(_NAME, failure)
        elif not asked.json:
            many = f"{disks} disk{'s' if disks != 1 else ''}, {format_size(copied)} copied"
            print(printable(f"{said.format(describe(instance))}: {many}"), flush=True)
    if asked.json:
        print(json.dumps(results, indent=2))
    elif not results:
        print("there is none")
    return status


def _alone(host: Host, instance: Any, act: Callable[[Any], tuple[int, int]]) -> tuple[int, int]:
    """By what is true now, and while nobody else works on its disks."""
    with host.disks.lock(ServerId(instance.uuid), wait=False):
        try:
            instance.refresh()
            if instance.host != nova.conf.CONF.host:
                raise Busy(f"server {describe(instance)}")
            return act(instance)
        except exception.UnexpectedTaskStateError as error:
            raise Busy(f"server {describe(instance)}") from error
        except exception.InstanceNotFound as error:
            raise _not_found(instance.uuid) from error


def _named(instance: Any) -> dict[str, str]:
    return {"server": instance.uuid, "name": instance.display_name or ""}


if __name__ == "__main__":
    main()
