"""What Nova imports as nova.virt.millpond: compute_driver = millpond.MillpondDriver."""

from millpond.nova.driver import MillpondDriver

__all__ = ["MillpondDriver"]
