"""libvirt's names for what a migration needs: the second and last module that imports libvirt."""

import libvirt

MIGRATE: int = (
    libvirt.VIR_MIGRATE_LIVE
    | libvirt.VIR_MIGRATE_PERSIST_DEST
    | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
    | libvirt.VIR_MIGRATE_ABORT_ON_ERROR
)
"""While its guest runs; defined there and not here any more, if it came through."""
PAUSED: int = libvirt.VIR_MIGRATE_PAUSED
"""The guest waits at the destination until somebody resumes it there."""
MIRROR_TOPS: int = libvirt.VIR_MIGRATE_NON_SHARED_INC
"""Of each disk that is named, the top layer is copied into a volume that is there."""
SYNCHRONOUS_WRITES: int = libvirt.VIR_MIGRATE_NON_SHARED_SYNCHRONOUS_WRITES
UNSAFE: int = libvirt.VIR_MIGRATE_UNSAFE
"""libvirt does not know which file systems are shared."""
AUTO_CONVERGE: int = libvirt.VIR_MIGRATE_AUTO_CONVERGE
POST_COPY: int = libvirt.VIR_MIGRATE_POSTCOPY
TUNNELLED: int = libvirt.VIR_MIGRATE_PEER2PEER | libvirt.VIR_MIGRATE_TUNNELLED
TLS: int = libvirt.VIR_MIGRATE_TLS

RUNNING_XML: str = libvirt.VIR_MIGRATE_PARAM_DEST_XML
DEFINED_XML: str = libvirt.VIR_MIGRATE_PARAM_PERSIST_XML
DISKS: str = libvirt.VIR_MIGRATE_PARAM_MIGRATE_DISKS
URI: str = libvirt.VIR_MIGRATE_PARAM_URI
LISTEN: str = libvirt.VIR_MIGRATE_PARAM_LISTEN_ADDRESS

MIGRATABLE: int = libvirt.VIR_DOMAIN_XML_MIGRATABLE | libvirt.VIR_DOMAIN_XML_SECURE
MIGRATABLE_DEFINED: int = MIGRATABLE | libvirt.VIR_DOMAIN_XML_INACTIVE

ABORTED: int = libvirt.VIR_ERR_OPERATION_ABORTED
OPERATION_INVALID: int = libvirt.VIR_ERR_OPERATION_INVALID

NO_JOB: int = libvirt.VIR_DOMAIN_JOB_NONE
MEMORY_DONE: str = libvirt.VIR_DOMAIN_JOB_MEMORY_PROCESSED
MEMORY_ROUND: str = libvirt.VIR_DOMAIN_JOB_MEMORY_ITERATION
DISK_DONE: str = libvirt.VIR_DOMAIN_JOB_DISK_PROCESSED

LIFECYCLE: int = libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE
SUSPENDED: int = libvirt.VIR_DOMAIN_EVENT_SUSPENDED
RESUMED: int = libvirt.VIR_DOMAIN_EVENT_RESUMED

PAUSED_STATE: int = libvirt.VIR_DOMAIN_PAUSED
ARRIVING = (libvirt.VIR_DOMAIN_PAUSED_MIGRATION, libvirt.VIR_DOMAIN_PAUSED_STARTING_UP)
"""Reasons for which a domain is paused."""
LEFT = (
    (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY),
    (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED),
    (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_POSTCOPY_FAILED),
)
"""States, with their reasons."""

INCOMPATIBLE = (libvirt.VIR_CPU_COMPARE_INCOMPATIBLE, libvirt.VIR_CPU_COMPARE_ERROR)

Error = libvirt.libvirtError
