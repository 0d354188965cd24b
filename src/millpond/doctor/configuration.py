"""The configuration: is it valid, and does anything in it go unread?"""

from collections.abc import Sequence
from pathlib import Path

from millpond import config
from millpond.doctor.finding import Finding, ok, problem, warning
from millpond.errors import BadConfiguration
from millpond.hosts.deployment import Deployment


def load(config_files: Sequence[Path]) -> tuple[Deployment | None, list[Finding]]:
    """What there is to say of the files, and the hosts that they configure, if they do."""
    try:
        conf = config.read(config_files)
        settings = config.own_settings(conf)
    except BadConfiguration as error:
        return None, [problem(str(each), each.advice or error.advice) for each in error.problems]
    files = ", ".join(str(path) for path in config.files_of(conf))
    found = [ok(f"{files or 'no file, every option at its default'}: valid")]
    found += [warning(each, "remove it, or correct its name") for each in config.unread(conf)]
    return Deployment(settings), found
