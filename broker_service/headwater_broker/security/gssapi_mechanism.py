"""GSSAPI (Kerberos V5) on the broker's side, RFC 4752: one of the two users of gssapi.

The context's tokens and the choice of the security layer are Kerberos' work in a thread. Headwater
offers no layer: TLS encrypts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gssapi
from gssapi.exceptions import GSSError

from headwater.errors import UsageError
from headwater.ports.authorizer import Principal
from headwater.security.kerberos_names import LocalNames
from headwater_broker.security.mechanism import Authenticated, AuthenticationFailedError
from headwater_broker.security.session import Session

GSSAPI = "GSSAPI"
OFFER = bytes((1, 0, 0, 0))
"""No security layer."""


class GssapiMechanism:
    """Accepts tickets for the broker's service (`security.mechanism.Mechanism`)."""

    name = GSSAPI

    def __init__(self, options: Mapping[str, str], service: str, rules: Sequence[str]) -> None:
        """`options` of Krb5LoginModule: `keyTab` and `principal`. `service`:
        sasl.kerberos.service.name. Raises UsageError."""
        key_table, principal = options.get("keyTab", ""), options.get("principal", "")
        if not key_table or not principal:
            raise UsageError(
                "GSSAPI needs a key table: set keyTab and principal in sasl.jaas.config"
            )
        if service and principal.partition("/")[0] != service:
            raise UsageError(
                f"sasl.kerberos.service.name is {service}, but the principal is {principal}"
            )
        if not Path(key_table).is_file():
            raise UsageError(
                f"sasl.jaas.config: there is no key table {key_table}: export the broker's key by "
                "kadmin's ktadd, and name the file in keyTab"
            )
        try:
            name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
            self.credentials: Any = gssapi.Credentials(
                name=name, usage="accept", store={"keytab": key_table}
            )
        except GSSError as error:
            raise UsageError(f"key table {key_table}, principal {principal}: {error}") from None
        self.names = LocalNames(rules, principal.rpartition("@")[2])

    def begin(self, session: Session) -> GssapiServerExchange:
        """A new exchange."""
        return GssapiServerExchange(self, session.listener)


class GssapiServerExchange:
    """Accepts one client's context, then its choice of the layer."""

    def __init__(self, owner: GssapiMechanism, listener: str) -> None:
        self.result: Authenticated | None = None
        self.refusal = ""
        self._owner = owner
        self._listener = listener
        self._context: Any = gssapi.SecurityContext(creds=owner.credentials, usage="accept")
        self._is_offered = False

    async def step(self, token: bytes) -> bytes:
        """The answer to a token. Raises AuthenticationFailedError."""
        try:
            return await asyncio.to_thread(self._step, token)
        except GSSError as error:
            raise AuthenticationFailedError(f"GSSAPI: {error}") from None

    def _step(self, token: bytes) -> bytes:
        if not self._context.complete:
            answer = self._context.step(token)
            if answer or not self._context.complete:
                return bytes(answer or b"")
            return self._offer()
        if not self._is_offered:
            return self._offer()
        choice = bytes(self._context.unwrap(token).message)
        if len(choice) < len(OFFER) or choice[0] != OFFER[0]:
            raise AuthenticationFailedError("GSSAPI: the client chose a layer that is not offered")
        self._authorize()
        return b""

    def _offer(self) -> bytes:
        self._is_offered = True
        return bytes(self._context.wrap(OFFER, False).message)

    def _authorize(self) -> None:
        """The ticket alone says who it is. The authorization id that follows the choice is passed
        over, as Kafka does (CVE-2017-12610): Python's clients put the broker's service there."""
        client = str(self._context.initiator_name)
        name = self._owner.names.name_of(client)
        if name is None:
            raise AuthenticationFailedError(f"GSSAPI: no rule gives {client[:100]!r} a name")
        self.result = Authenticated(Principal("User", name, self._listener))
