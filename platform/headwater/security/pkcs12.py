"""PKCS12 stores as PEM, by way of `cryptography`: `ssl` reads PEM only."""

from __future__ import annotations

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

from headwater.errors import UsageError


def pem_of_pkcs12(data: bytes, password: str, where: str) -> tuple[str, tuple[str, ...]]:
    """(private key or "", certificates) in PEM; the key's own certificate is the first one.

    Raises UsageError that names `where` when the bytes or the password are wrong.
    """
    try:
        store = load_pkcs12(data, password.encode() or None)
    except ValueError as error:
        raise UsageError(f"{where}: not a PKCS12 store of this password: {error}") from None
    own = [] if store.cert is None else [store.cert]
    certificates = tuple(
        entry.certificate.public_bytes(Encoding.PEM).decode()
        for entry in [*own, *store.additional_certs]
    )
    if store.key is None:
        return "", certificates
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return key.decode(), certificates
