"""How an error is told: one sentence, and what to do about it."""

import sys

from millpond.errors import MillpondError


def complain(error: MillpondError) -> None:
    for line in str(error).splitlines() or [""]:
        print(f"millpond: {line}", file=sys.stderr)
    if error.advice:
        print(f"  hint: {error.advice}", file=sys.stderr)
