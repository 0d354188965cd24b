"""The handler that the option ``template_image_handler`` names, out of whatever is installed."""

from typing import Any

import stevedore
from stevedore.exception import NoUniqueMatch

from millpond.errors import BadOption
from millpond.templates.handler import BaseTemplateImagehandler


def find_handler(entry_points: str, name: str) -> type[BaseTemplateImagehandler]:
    kind = _loaded(entry_points, name)
    if not (isinstance(kind, type) and issubclass(kind, BaseTemplateImagehandler)):
        raise _unusable(name, "is no BaseTemplateImagehandler")
    return kind


def _loaded(entry_points: str, name: str) -> Any:
    try:
        manager: Any = stevedore.DriverManager(entry_points, name)
    except NoUniqueMatch as error:
        raise _unusable(name, "is there more than once") from error
    except Exception as error:  # whatever somebody else's module raises when it is imported
        raise _unusable(name, f"cannot be loaded ({type(error).__name__}: {error})") from error
    return manager.driver


def _unusable(name: str, reason: str) -> BadOption:
    advised = "mend or remove the plug-in; docs/plugins.md says what it must be"
    return BadOption("[DEFAULT] template_image_handler", f"handler {name!r} {reason}", advised)
