"""Hosts whose collaborators are given."""

from copy import copy

from millpond.hosts.host import Host


def host_with(host: Host | None = None, /, **collaborators: object) -> Host:
    """With these instead of its own; without a host, with these and no others."""
    made = copy(host) if host else Host.__new__(Host)
    vars(made).update(collaborators)
    return made
