"""A key manager for castellan: a directory of certificates, each in a file under its id."""

from pathlib import Path
from typing import Any

from castellan.common.exception import ManagedObjectNotFoundError
from castellan.common.objects.x_509 import X509
from castellan.key_manager import key_manager_opts
from castellan.key_manager.not_implemented_key_manager import NotImplementedKeyManager
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import Certificate
from oslo_config import cfg


def put(directory: Path, id: str, certificate: Certificate) -> cfg.ConfigOpts:
    """The options that lead castellan there."""
    (directory / id).write_bytes(certificate.public_bytes(Encoding.DER))
    conf = cfg.ConfigOpts()
    conf.register_opts(key_manager_opts, "key_manager")
    conf.register_opt(cfg.StrOpt("directory"), "certificates")
    conf([])
    conf.set_override("backend", f"{__name__}.CertificateStore", "key_manager")
    conf.set_override("directory", str(directory), "certificates")
    return conf


class CertificateStore(NotImplementedKeyManager):
    def __init__(self, configuration: cfg.ConfigOpts) -> None:
        super().__init__(configuration)
        self._directory = Path(configuration.certificates.directory)

    def get(self, _context: Any, managed_object_id: str, _metadata_only: bool = False) -> X509:
        try:
            return X509((self._directory / managed_object_id).read_bytes())
        except FileNotFoundError as error:
            raise ManagedObjectNotFoundError(uuid=managed_object_id) from error
