"""Millpond prepares the disks of virtual machines on libvirt hosts."""

__version__ = "0.1.0"
