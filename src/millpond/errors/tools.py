"""The commands that advice names, each once: whoever shows advice elsewhere has their own for them
(nova/advice.py)."""

from enum import StrEnum


class Tool(StrEnum):
    DOCTOR = "millpond doctor"
    REPAIR = "millpond doctor --mend"
    ADOPT = "millpond doctor --adopt"
    COMPARE_PLACEMENT = "millpond doctor --placement"
    REPAIR_PLACEMENT = "millpond doctor --placement --mend"
    PROBE_KVM = "millpond doctor --probe-kvm"
    SERVER = "millpond server"
    IMAGES = "millpond image list"
    ADD_IMAGE = "millpond image add FILE"
    REMOVE_IMAGE = "millpond image remove"
    POOLS = "millpond pool list"
    VOLUMES = "millpond pool show"
    TEMPLATES = "millpond cache list"
    FETCH_TEMPLATE = "millpond cache fetch IMAGE"
    HOSTS = "millpond host list"
    REPORT_HOSTS = "millpond host list --refresh"
    OPTIONS = "millpond config sample"
    LEGACY = "millpond transition status"
    EXPLAIN = "millpond explain IMAGE"
