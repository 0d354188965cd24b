"""What a guest is told at its first boot, as the config drive that cloud-init knows."""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pycdlib

from millpond.errors import BadOption, FileNotReadable

_LABEL = "config-2"  # cloud-init looks for a file system of this label
_USER_DATA_LIMIT = 64 * 1024  # Nova's limit before encoding; a larger one belongs on a web server


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestConfiguration:
    hostname: str
    keys: tuple[str, ...] = ()
    user_data: bytes = b""

    @classmethod
    def read(cls, hostname: str, keys: Sequence[Path], user_data: Path | None) -> Self:
        content = _read(user_data) if user_data else b""
        if len(content) > _USER_DATA_LIMIT:
            limit = f"{_USER_DATA_LIMIT // 1024} KiB"
            raise BadOption("--user-data", f"{user_data} is larger than {limit}", "shorten it")
        return cls(
            hostname=hostname, keys=tuple(_public_key(each) for each in keys), user_data=content
        )

    @property
    def says_something(self) -> bool:
        return bool(self.keys or self.user_data)

    def iso(self) -> bytes:
        """An ISO 9660 image with Rock Ridge and Joliet names."""
        disc = pycdlib.PyCdlib()
        disc.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident=_LABEL)
        for parent in ("openstack", "openstack/latest"):
            _add_directory(disc, parent)
        for name, content in self._files().items():
            _add_file(disc, f"openstack/latest/{name}", content)
        target = io.BytesIO()
        disc.write_fp(target)
        disc.close()
        return target.getvalue()

    def _files(self) -> dict[str, bytes]:
        described = {
            "hostname": self.hostname,
            "name": self.hostname,
            "public_keys": {f"key{number}": key for number, key in enumerate(self.keys)},
        }
        found = {"meta_data.json": json.dumps(described, indent=1).encode()}
        if self.user_data:
            found["user_data"] = self.user_data
        return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileNotReadable(path, error.strerror or str(error)) from error


def _public_key(path: Path) -> str:
    text = _read(path).decode(errors="replace").strip()
    if "PRIVATE KEY" in text:
        raise BadOption("--ssh-key", f"{path} is a private key", f"give {path}.pub")
    if not text.startswith(("ssh-", "ecdsa-", "sk-")):
        raise BadOption("--ssh-key", f"{path} holds no public key", "give the file ending in .pub")
    return text


def _add_directory(disc: pycdlib.PyCdlib, path: str) -> None:
    name = path.rpartition("/")[2]
    disc.add_directory(f"/{_plain(path)}", rr_name=name, joliet_path=f"/{path}")


def _add_file(disc: pycdlib.PyCdlib, path: str, content: bytes) -> None:
    name = path.rpartition("/")[2]
    plain = f"/{_plain(path)}.;1" if "." not in name else f"/{_plain(path)};1"
    disc.add_fp(io.BytesIO(content), len(content), plain, rr_name=name, joliet_path=f"/{path}")


def _plain(path: str) -> str:
    """ISO 9660's own names know only capitals, digits and underscores; nobody reads them."""
    return path.upper().replace("-", "_")
