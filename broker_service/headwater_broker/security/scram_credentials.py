"""The SCRAM credentials of users, as the metadata store has them (Kafka's `CredentialProvider`).

They stand in `/config/users/<quoted name>`, beside the user's quotas; the controller sends that
node's configs to every broker. A user that does not exist gets a credential, too, always the same
one, which no password fits: a client cannot tell it from a wrong password.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping

from headwater.config.quota_precedence import encoded
from headwater.security.scram_credential import (
    ITERATIONS_DEFAULT,
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
    parse_credential,
    salt_of,
)

UserConfigs = Mapping[str, Mapping[str, str]]
"""`users/<quoted name>` -> config -> value."""
MECHANISM_NAMES = frozenset(mechanism.value for mechanism in ScramMechanism)
"""Configs of a user's node that hold credentials."""


def user_path(name: str) -> str:
    """The path of a user's node, below `/config`."""
    return f"users/{encoded(name)}"


class ScramCredentials:
    """Finds the credential of a user."""

    def __init__(self, configs: Callable[[], UserConfigs], secret: bytes) -> None:
        """`secret` is the same on all brokers, and known to them alone."""
        self._configs = configs
        self._secret = secret
        self._seen: UserConfigs = {}
        self._rounds: dict[ScramMechanism, list[int]] = {}
        """The iterations of all credentials in `_seen`, by mechanism, sorted."""

    def find(self, mechanism: ScramMechanism, name: str) -> ScramCredential | None:
        """The credential; None when there is none that may be used."""
        text = self._configs().get(user_path(name), {}).get(mechanism.value)
        if text is None:
            return None
        try:
            credential = parse_credential(text)
        except ValueError:
            return None
        return credential if credential.iterations >= ITERATIONS_MIN else None

    def stand_in(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        """The credential of a user that does not exist. Same name, same salt, on all brokers; the
        iterations are those of one of the users that exist."""
        key = hmac.digest(self._secret, f"{mechanism.value}:{name}".encode(), "sha512")
        size, rounds = mechanism.key_bytes, self._all_rounds(mechanism)
        iterations = (
            rounds[int.from_bytes(key[17:21], "big") % len(rounds)]
            if rounds
            else ITERATIONS_DEFAULT
        )
        return ScramCredential(salt_of(key[:17]), key[-size:], key[-size:], iterations)

    def _all_rounds(self, mechanism: ScramMechanism) -> list[int]:
        configs = self._configs()
        if configs is not self._seen:
            self._seen, self._rounds = configs, {}
        rounds = self._rounds.get(mechanism)
        if rounds is None:
            texts = [row[mechanism.value] for row in configs.values() if mechanism.value in row]
            found = (text.rpartition("iterations=")[2] for text in texts)
            rounds = sorted(int(text) for text in found if text.isdigit())
            self._rounds[mechanism] = rounds
        return rounds
