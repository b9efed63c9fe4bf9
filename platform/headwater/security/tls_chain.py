"""The certificates that a side of TLS sends: its own, and the one that signed it if it is at hand.

OpenSSL completes a chain of one certificate out of the trusted ones, and verifies signatures for
that, in each handshake: a tenth of a broker's handshake and more. So the same chain is made once.
"""

from __future__ import annotations

import ssl

from headwater.security.tls_stores import KeyStore
from headwater.security.x509 import CertificateFormatError, read_certificate


def chain_to_send(
    store: KeyStore, own: ssl.SSLContext, trusted: tuple[str, ...]
) -> tuple[str, ...]:
    """The chain in PEM. `own`: a server's context with the key and the chain of `store`."""
    if len(store.chain) > 1:
        return store.chain
    subject, issuer = _names(store.chain[0])
    if issuer == subject:
        return store.chain
    for pem in trusted:
        if _names(pem)[0] == issuer and _has_signed(pem, own):
            return (*store.chain, pem)
    return store.chain


def _names(pem: str) -> tuple[str, str]:
    """Of its subject and its issuer; empty for a certificate that only OpenSSL can read."""
    try:
        found = read_certificate(ssl.PEM_cert_to_DER_cert(pem))
    except (CertificateFormatError, ValueError):
        return "", ""
    return found.subject, found.issuer


def _has_signed(pem: str, own: ssl.SSLContext) -> bool:
    """Whether a client that trusts only this certificate would trust the server: a name proves
    nothing, as a new authority may have that of the former one."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.load_verify_locations(cadata=pem)
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server)
    serving = own.wrap_bio(to_server, to_client, server_side=True)
    for side in (asking, serving, asking):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue  # the other side's turn
        except ssl.SSLError:
            return False
    return True  # the client has seen the chain, and went on
