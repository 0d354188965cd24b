"""The environments with OpenStack's services, and with an older Nova, which tools/setup makes from
lock files."""

import hashlib
import importlib.metadata
import os
import shutil
from pathlib import Path

_REPOSITORY = Path(__file__).parents[3]
_INSTALL = "tools/setup openstack-packages"
NOVA = 34
"""The release of Nova that the services are of."""
OLDER_NOVA = 33


def reason_to_skip(release: int = NOVA) -> str | None:
    """Why no service can run here, with the command that would change that."""
    if not (_environment(release) / "complete").exists() and release != NOVA:
        return f"Nova {release} is not in {_environment(release)}: tools/setup nova-releases"
    if not (_environment() / "complete").exists():
        return f"OpenStack's services are not in {_environment()}: {_INSTALL}"
    for unpacked in (tgt("tgtd"), rabbitmq()):
        if not unpacked.exists():
            return f"there is no {unpacked}: {_INSTALL}"
    return None


def reason_to_skip_tempest() -> str | None:
    """The same of Tempest."""
    if not (_of_tempest() / "complete").exists():
        return f"Tempest is not in {_of_tempest()}: tools/setup tempest-packages"
    return None


def tempest(program: str) -> Path:
    """A program of Tempest's own environment."""
    return _of_tempest() / "bin" / program


def python(release: int = NOVA) -> Path:
    """With this release of Nova."""
    return _environment(release) / "bin/python"


def python_path(directory: Path) -> str:
    """By which it finds Millpond: our sources, and what Millpond's installation says of it,
    copied into the directory, without all that is installed next to it."""
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


def _environment(release: int = NOVA) -> Path:
    return _made_from("openstack", "requirements" if release == NOVA else f"nova-{release}")


def _of_tempest() -> Path:
    return _made_from("tempest", "requirements")


def _made_from(room: str, lock: str) -> Path:
    text = (_REPOSITORY / "tools" / room / f"{lock}.txt").read_bytes()
    return _cache(room) / hashlib.sha256(text).hexdigest()[:16]


def _cache(room: str = "openstack") -> Path:
    return Path(os.environ.get("MILLPOND_CACHE", Path.home() / ".cache/millpond")) / room
