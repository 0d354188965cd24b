"""Configuration files of the services that tests start."""

from collections.abc import Mapping


def ini(sections: Mapping[str, Mapping[str, object]]) -> str:
    return "\n".join(
        line
        for name, settings in sections.items()
        for line in (f"[{name}]", *(f"{key} = {value}" for key, value in settings.items()), "")
    )
