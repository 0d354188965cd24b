"""Advice as it is said under Nova: with the programs that do there what the command does alone."""

import re

from millpond.errors import MillpondError, Tool

_PROGRAMS = {
    Tool.DOCTOR: "millpond-nova-doctor",
    Tool.REPAIR: "millpond-nova-doctor --repair",
    Tool.ADOPT: "millpond-nova-doctor --repair",
    Tool.COMPARE_PLACEMENT: "nova-manage placement audit",
    Tool.REPAIR_PLACEMENT: "nova-manage placement heal_allocations",
    Tool.PROBE_KVM: "virt-host-validate qemu",
    Tool.SERVER: "openstack server",
    Tool.IMAGES: "openstack image list",
    Tool.ADD_IMAGE: "openstack image create --file FILE NAME",
    Tool.INDEX_IMAGE: "millpond image index FILE",
    Tool.REMOVE_IMAGE: "openstack image delete",
    Tool.NETWORKS: "virsh net-list --all",
    Tool.START_NETWORK: "virsh net-start",
    Tool.POOLS: "virsh pool-list --all",
    Tool.VOLUMES: "virsh vol-list",
    Tool.TEMPLATES: "virsh vol-list nova-base-images-pool",
    Tool.FETCH_TEMPLATE: "openstack aggregate cache image AGGREGATE IMAGE",
    Tool.HOST: "openstack compute service",
    Tool.HOSTS: "openstack hypervisor list",
    Tool.REPORT_HOSTS: "openstack hypervisor list",
    Tool.OPTIONS: "millpond config sample",
    Tool.LEGACY: "millpond-nova-transition status",
    Tool.TRANSITION: "openstack server reboot --hard",
    Tool.EXPLAIN: "openstack image show IMAGE",
}
_NAMED = re.compile("|".join(sorted((re.escape(each) for each in Tool), key=len, reverse=True)))


def reword_for_nova(advice: str) -> str:
    return _NAMED.sub(lambda found: _PROGRAMS[Tool(found.group())], advice)


def explain(error: MillpondError) -> str:
    """In one line: what is wrong and what to do."""
    return f"{error}: {reword_for_nova(error.advice)}" if error.advice else str(error)
