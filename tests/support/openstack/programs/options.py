"""Prints the names of all options of nova.conf by their section, as JSON: `python options.py`."""

import json

import nova.conf

CONF = nova.conf.CONF


def options() -> dict[str, list[str]]:
    groups = {name: sorted(group._opts) for name, group in CONF._groups.items()}
    return {"DEFAULT": sorted(CONF._opts), **groups}


if __name__ == "__main__":
    print(json.dumps(options()))
