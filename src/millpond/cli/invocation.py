"""What was said before the verb: which configuration."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    config_files: tuple[Path, ...] = ()
