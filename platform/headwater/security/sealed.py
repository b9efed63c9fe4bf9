"""Secrets at rest: sealed with AES-256-GCM under a key that is kept elsewhere.

The sealed text names the thing that it belongs to: it cannot be moved to another one.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from headwater.entropy import Entropy
from headwater.errors import UsageError

KEY_BYTES = 32
NONCE_BYTES = 12


class Sealer:
    """Seals and opens texts with one key."""

    def __init__(self, key: bytes, entropy: Entropy) -> None:
        self._cipher = AESGCM(key)
        self._entropy = entropy

    def seal(self, text: str, owner: str) -> str:
        """The sealed form of `text`; `owner` must be the same to open it."""
        nonce = self._entropy.randbytes(NONCE_BYTES)
        sealed = self._cipher.encrypt(nonce, text.encode(), owner.encode())
        return base64.b64encode(nonce + sealed).decode()

    def open(self, sealed: str, owner: str) -> str:
        """The text. Raises UsageError for another key, or a text that was changed."""
        try:
            data = base64.b64decode(sealed, validate=True)
            found = self._cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], owner.encode())
        except (InvalidTag, binascii.Error, ValueError):
            raise UsageError(
                f"the secret of {owner} does not open: it was sealed with another key"
            ) from None
        return found.decode()


def read_key(path: str | Path, option: str) -> bytes:
    """The key in a file: 32 bytes in base64, as of `openssl rand -base64 32`. Raises UsageError."""
    try:
        key = base64.b64decode(Path(path).expanduser().read_text().strip(), validate=True)
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}: name a file with a key") from None
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise UsageError(
            f"{option} {path}: not {KEY_BYTES} bytes in base64: make it with"
            " `openssl rand -base64 32`"
        )
    return key
