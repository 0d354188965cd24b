"""Runs statements of SQL, one in each line of a file: `python run_sql.py URL FILE`."""

import sys
from pathlib import Path

import sqlalchemy


def main(url: str, file: str) -> None:
    engine = sqlalchemy.create_engine(url)
    statements = Path(file).read_text()
    if engine.dialect.paramstyle in ("format", "pyformat"):
        statements = statements.replace("%", "%%")
    with engine.begin() as connection:
        for statement in statements.splitlines():
            connection.exec_driver_sql(statement)


if __name__ == "__main__":
    main(*sys.argv[1:])
