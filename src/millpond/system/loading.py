"""Modules that are loaded by name when they are needed: their libraries take too long to load for
every command, or are not installed everywhere."""

import importlib
from typing import Any


def load(name: str) -> Any:
    """``package.module``, or what a module has: ``package.module:name``."""
    module, _, attribute = name.partition(":")
    found = importlib.import_module(module)
    return getattr(found, attribute) if attribute else found
