"""Which signatures of images are believed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SignaturePolicy:
    trusted: tuple[str, ...]
    """Ids of certificates, to one of which a signer's must lead; empty believes every certificate
    that the key manager has."""
    key_manager: object
    """Where castellan reads [key_manager], [barbican] and [vault] by itself: a ConfigOpts."""
    seconds: float
    """That the key manager has to answer."""
