"""Who signs images: keys with certificates, made for the test."""

import base64
import itertools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import NameOID

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

_SERIAL_NUMBERS = itertools.count(1)
_USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


@dataclass(frozen=True, kw_only=True)
class Signer:
    name: x509.Name
    key: Key
    certificate: x509.Certificate

    def properties(self, content: bytes, certificate_id: str) -> dict[str, str]:
        """Those of an image that has been signed."""
        if isinstance(self.key, rsa.RSAPrivateKey):
            kind = "RSA-PSS"
            pss = padding.PSS(mgf=padding.MGF1(SHA256()), salt_length=padding.PSS.MAX_LENGTH)
            signature = self.key.sign(content, pss, SHA256())
        else:
            kind = f"ECC_{self.key.curve.name.upper()}"
            signature = self.key.sign(content, ec.ECDSA(SHA256()))
        return {
            "img_signature": base64.b64encode(signature).decode(),
            "img_signature_hash_method": "SHA-256",
            "img_signature_key_type": kind,
            "img_signature_certificate_uuid": certificate_id,
        }


def signer(
    name: str, *, issuer: Signer | None = None, key: Key | None = None, days: int = 2
) -> Signer:
    """One without an issuer is a root. Its certificate ends so many days from yesterday."""
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    key = key or rsa.generate_private_key(65537, 2048)
    yesterday = datetime.now(UTC) - timedelta(days=1)
    is_root = issuer is None
    uses = {f: f == ("key_cert_sign" if is_root else "digital_signature") for f in _USES}
    certificate = (
        x509.CertificateBuilder()
        .subject_name(own)
        .issuer_name(issuer.name if issuer else own)
        .public_key(key.public_key())
        .serial_number(next(_SERIAL_NUMBERS))
        .not_valid_before(yesterday - timedelta(days=1))
        .not_valid_after(yesterday + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_root, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**uses), critical=True)
        .sign(issuer.key if issuer else key, SHA256())
    )
    return Signer(name=own, key=key, certificate=certificate)
