"""A real Barbican, which keeps certificates encrypted in a database of its own."""

import base64
from pathlib import Path

import requests
from cryptography import x509
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.serialization import Encoding

from tests.support.ini import ini
from tests.support.openstack.service import Api

# Its usual pipeline without keystonemiddleware, for which programs/loopback_wsgi.py stands in.
_PASTE = {
    "composite:main": {
        "use": "egg:Paste#urlmap",
        "/": "versions",
        "/v1": "v1",
    },
    "pipeline:versions": {"pipeline": "microversion version_app"},
    "pipeline:v1": {"pipeline": "context microversion api_app"},
    "filter:context": {
        "paste.filter_factory": "barbican.api.middleware.context:ContextMiddleware.factory"
    },
    "filter:microversion": {
        "paste.filter_factory": (
            "barbican.api.middleware.microversion:MicroversionMiddleware.factory"
        )
    },
    "app:api_app": {"paste.app_factory": "barbican.api.app:create_main_app"},
    "app:version_app": {"paste.app_factory": "barbican.api.app:create_version_app"},
}


class Barbican(Api):
    def keep(self, certificate: x509.Certificate) -> str:
        """Answers the id under which it can be had."""
        return self.keep_bytes(certificate.public_bytes(Encoding.PEM))

    def keep_bytes(self, content: bytes) -> str:
        """The same for what only claims to be a certificate."""
        answer = requests.post(
            f"{self.url}/v1/secrets",
            json={
                "name": "certificate",
                "secret_type": "certificate",
                "payload": base64.b64encode(content).decode(),
                "payload_content_type": "application/octet-stream",
                "payload_content_encoding": "base64",
            },
            timeout=60,
        )
        answer.raise_for_status()
        return str(answer.json()["secret_ref"]).rpartition("/")[2]

    def _configure(self) -> None:
        self._paste.write_text(ini(_PASTE))
        (self.directory / "barbican.conf").write_text(ini(self._settings()))

    def _settings(self) -> dict[str, dict[str, object]]:
        return {
            "DEFAULT": {"host_href": self.url, "transport_url": "fake:/"},
            "database": {"connection": f"sqlite:///{self.directory}/barbican.sqlite"},
            "secretstore": {"enabled_secretstore_plugins": "store_crypto"},
            "crypto": {"enabled_crypto_plugins": "simple_crypto"},
            "simple_crypto_plugin": {"kek": Fernet.generate_key().decode()},
        }

    def _command(self) -> list[str]:
        return self._program("barbican_api.py", self._paste)

    @property
    def _paste(self) -> Path:
        return self.directory / "paste.ini"
