"""How an error is told: one sentence, and what to do about it."""

import sys

from millpond.errors import MillpondError
from millpond.model.names import printable


def complain(error: MillpondError) -> None:
    for line in str(error).split("\n"):
        print(f"millpond: {printable(line)}", file=sys.stderr)
    if error.advice:
        print(printable(f"  hint: {error.advice}", keep="\n"), file=sys.stderr)
