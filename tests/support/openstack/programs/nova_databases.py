"""Nova's databases and its one cell: `python nova_databases.py NOVA.CONF URL-OF-CELL0`.

What four runs of nova-manage do, in one process: most of each is importing.
"""

import sys

from nova import config, objects
from nova.cmd.manage import ApiDbCommands, CellV2Commands, DbCommands


def main(conf: str, cell0: str) -> None:
    config.parse_args(["nova-manage", "--config-file", conf])
    objects.register_all()
    cells = CellV2Commands()
    steps = (
        ApiDbCommands().sync(),
        cells.map_cell0(cell0),
        cells.create_cell(name="cell1"),
        DbCommands().sync(),
    )
    if any(steps):
        sys.exit(f"not all of it succeeded: {steps}")


if __name__ == "__main__":
    main(*sys.argv[1:])
