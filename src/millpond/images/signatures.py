"""Signatures of images (img_signature*): the door to cursive, which Nova trusts with them.

Its own way to a certificate reads the global configuration of the process, so that only its
decisions are used.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509 import Certificate
from cursive import signature_utils
from cursive.certificate_utils import CertificateVerificationContext, is_within_valid_dates
from cursive.exception import SignatureVerificationError

from millpond.errors import ImageRefused
from millpond.images.certificates import Certificates
from millpond.images.source import Proof
from millpond.model.cloud import SignaturePolicy
from millpond.model.image import SIGNATURE_PROPERTIES, Image

LOG = logging.getLogger(__name__)

_KEY_TYPES = signature_utils.SignatureKeyType.REGISTERED_TYPES
_HASH_METHODS = signature_utils.HASH_METHODS
_SIGN_AGAIN = "sign it again, as docs/images.md shows"


class Signatures:
    def __init__(self, policy: SignaturePolicy) -> None:
        self._of_every_image = policy.of_every_image
        self._trusted = policy.trusted
        self._certificates = Certificates(policy)

    def concerns(self, image: Image) -> bool:
        return self._of_every_image or bool(image.trusted)

    def proof_of(self, image: Image, auth: Any) -> Callable[[], Proof]:
        """Begins a proof, as often as the bytes begin. ``auth`` says who asks, as for Glance."""
        if missing := [name for name in SIGNATURE_PROPERTIES if not image.properties.get(name)]:
            raise _refusal(image, missing)
        text, hash_method, key_type, id = (image.properties[name] for name in SIGNATURE_PROPERTIES)
        _check_known(image, signature_utils.HASH_METHOD, _HASH_METHODS)
        _check_known(image, signature_utils.KEY_TYPE, _KEY_TYPES)
        signature = _decode(image, text)
        public_key = self._certificate(image, id, auth).public_key()
        if not isinstance(public_key, _KEY_TYPES[key_type].public_key_type):
            reason = f"certificate {id}, with which it is signed, has no key for {key_type}"
            raise ImageRefused(image.name, reason, _SIGN_AGAIN)
        create = _KEY_TYPES[key_type].create_verifier
        verifier = partial(create, signature, _HASH_METHODS[hash_method], public_key)
        return lambda: _SignatureProof(image.name, id, verifier())

    def _certificate(self, image: Image, id: str, auth: Any) -> Certificate:
        found = self._certificates.find(id, auth)
        if found is None:
            reason = f"the key manager has no certificate {id}, with which it is signed"
            raise ImageRefused(image.name, reason, _SIGN_AGAIN)
        if image.trusted or self._trusted:
            _check_dates(image, id, found)
            self._check_chain(image, id, found, auth)
        return found

    def _check_chain(self, image: Image, id: str, certificate: Certificate, auth: Any) -> None:
        trusted = image.trusted or self._trusted
        known = [(each, self._certificates.find(each, auth)) for each in trusted]
        for each, found in known:
            if found is None:
                LOG.warning("the key manager has no certificate %s, which is trusted", each)
        try:
            chain = CertificateVerificationContext([each for each in known if each[1]])
            chain.update(certificate)
            chain.verify()
        except (SignatureVerificationError, UnsupportedAlgorithm, TypeError) as error:
            LOG.debug("certificate %s: %s", id, error)
            reason = f"certificate {id}, with which it is signed, leads to no trusted one"
            named = "the server's list of trusted image certificates"
            where = named if image.trusted else "[glance] default_trusted_certificate_ids"
            advised = f"{where} has to name its issuer, and that one's, up to the root"
            raise ImageRefused(image.name, reason, advised) from error


class _SignatureProof:
    def __init__(self, image: str, certificate: str, verifier: Any) -> None:
        self._image = image
        self._certificate = certificate
        self._verifier = verifier

    def eat(self, chunk: bytes) -> None:
        self._verifier.update(chunk)

    def finish(self) -> None:
        try:
            self._verifier.verify()
        except (InvalidSignature, ValueError) as error:
            reason = f"it is not what was signed with certificate {self._certificate}"
            advised = "use it only if its publisher can say why, and signs it again"
            raise ImageRefused(self._image, reason, advised) from error


def _refusal(image: Image, missing: list[str]) -> ImageRefused:
    listed = ", ".join(missing)
    reason = (
        "it is not signed" if len(missing) == len(SIGNATURE_PROPERTIES) else f"it has no {listed}"
    )
    option = "trusted image certificates" if image.trusted else "verify_glance_signatures"
    advised = f"with {option} an image needs the properties {listed}"
    return ImageRefused(image.name, reason, advised)


def _check_known(image: Image, property: str, known: dict[str, Any]) -> None:
    if (stated := image.properties[property]) not in known:
        reason = f"its {property} is {stated!r}, which nothing here can verify"
        raise ImageRefused(image.name, reason, f"known are {', '.join(known)}")


def _decode(image: Image, text: str) -> bytes:
    with suppress(SignatureVerificationError):
        signature: bytes = signature_utils.get_signature(text)
        if signature:  # what is no base64 at all is passed over
            return signature
    raise ImageRefused(image.name, "its img_signature is not written in base64", _SIGN_AGAIN)


def _check_dates(image: Image, id: str, certificate: Certificate) -> None:
    if not is_within_valid_dates(certificate):
        since, until = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        reason = (
            f"certificate {id}, with which it is signed, is valid from {since:%Y-%m-%d} "
            f"to {until:%Y-%m-%d} only"
        )
        raise ImageRefused(image.name, reason, "sign it again, with a certificate of today")
