"""What a guest is told at its first boot, as the config drive that cloud-init knows."""

import io
import json
from dataclasses import dataclass

import pycdlib

_LABEL = "config-2"  # cloud-init looks for a file system of this label


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestConfiguration:
    hostname: str
    keys: tuple[str, ...] = ()
    user_data: bytes = b""

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
