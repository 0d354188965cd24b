"""Whether a host gets new servers, by the operator's word."""

import logging

from millpond.errors import BadInput, BadOption, Tool
from millpond.hosts.deployment import Deployment

LOG = logging.getLogger(__name__)


def disable(deployment: Deployment, name: str, why: str) -> bool:
    """Placement is told at once; False if it was disabled before. What is there stays."""
    check_choice(deployment, name)
    reporter = deployment.scheduler.reporter
    added = reporter.disabled.add(name, why)
    reporter.report(prove=False)  # also again: who was killed in between has not
    if added:
        LOG.info("disabled host %s: %s", name, why)
    return added


def enable(deployment: Deployment, name: str) -> None:
    """Also the only one: others may have been taken out of the configuration since."""
    deployment.host(name)
    reporter = deployment.scheduler.reporter
    if not reporter.disabled.remove(name):
        raise BadInput(f"host {name!r} is enabled already", f"'{Tool.HOSTS}' shows all hosts")
    reporter.report(prove=False)
    LOG.info("enabled host %s", name)


def check_choice(deployment: Deployment, name: str) -> None:
    """That the host is there, and is not the only one."""
    deployment.host(name)
    if not deployment.has_several:
        reason = f"there is no other host than {name!r}"
        raise BadOption("host", reason, "name another one in enabled_hosts")
