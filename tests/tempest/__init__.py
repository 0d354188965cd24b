"""Tempest, OpenStack's own tests, with our driver and with Nova's own side by side."""
