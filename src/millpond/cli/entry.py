"""Where ``millpond`` begins: Ctrl-C while the rest of it is being loaded is no traceback."""

import sys
from importlib import import_module

_INTERRUPTED = 130
"""As a shell says it: 128 and the number of SIGINT."""


def main() -> None:
    try:
        import_module("millpond.cli.main").main()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
