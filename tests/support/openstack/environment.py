"""The environment with OpenStack's services, which tools/setup makes from a lock file."""

import hashlib
import importlib.metadata
import os
import shutil
from pathlib import Path

_REPOSITORY = Path(__file__).parents[3]
_INSTALL = "tools/setup openstack-packages"


def reason_to_skip() -> str | None:
    """Why no service can run here, with the command that would change that."""
    if not (_environment() / "complete").exists():
        return f"OpenStack's services are not in {_environment()}: {_INSTALL}"
    for unpacked in (tgt("tgtd"), rabbitmq()):
        if not unpacked.exists():
            return f"there is no {unpacked}: {_INSTALL}"
    return None


def reason_to_skip_release(release: str) -> str | None:
    """The same of an older Nova."""
    if not (_environment(release) / "complete").exists():
        return f"{release} is not in {_environment(release)}: tools/setup nova-releases"
    return None


def reason_to_skip_tempest() -> str | None:
    """The same of Tempest."""
    if not (_environment(room="tempest") / "complete").exists():
        where = _environment(room="tempest")
        return f"Tempest is not in {where}: tools/setup tempest-packages"
    return None


def tempest(program: str) -> Path:
    """A program of Tempest's own environment."""
    return _environment(room="tempest") / "bin" / program


def python(release: str = "requirements") -> Path:
    return _environment(release) / "bin/python"


def python_path(directory: Path) -> str:
    """By which it finds Millpond: our sources, and what Millpond's installation says of it,
    copied into the directory, without all that is installed beside it."""
    own = directory / "millpond-installed"
    for file in importlib.metadata.distribution("millpond").files or []:
        if file.parent.name.endswith(".dist-info"):
            target = own / file.parent.name / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(file.locate()), target)
    return f"{_REPOSITORY / 'src'}:{own}"


def tgt(program: str) -> Path:
    """Debian's tgt is unpacked there and not installed, or it would serve the whole network."""
    return _cache() / "tgt/usr/sbin" / program


def rabbitmq() -> Path:
    """The same of Debian's RabbitMQ, with its Erlang."""
    return _cache() / "rabbitmq/usr"


def _environment(lock: str = "requirements", room: str = "openstack") -> Path:
    text = (_REPOSITORY / "tools" / room / f"{lock}.txt").read_bytes()
    return _cache(room) / hashlib.sha256(text).hexdigest()[:16]


def _cache(room: str = "openstack") -> Path:
    return Path(os.environ.get("MILLPOND_CACHE", Path.home() / ".cache/millpond")) / room
