"""GSSAPI (Kerberos V5) on the client's side, RFC 4752: one of the two users of gssapi."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gssapi
from gssapi.exceptions import GSSError

from headwater.errors import ErrorCode, KafkaError, UsageError

GSSAPI = "GSSAPI"
NO_LAYER = 1
"""The bit of "no security layer": TLS encrypts, if anything does."""
CHOICE = bytes((NO_LAYER, 0, 0, 0))
"""No layer, so no messages of any size, and no other name to be authorised as."""


class GssapiExchange:
    """Proves the client's Kerberos principal (`headwater.ports.credentials.SaslExchange`)."""

    mechanism = GSSAPI

    def __init__(self, service: str, host: str, options: Mapping[str, str] | None = None) -> None:
        """`options`: those of Krb5LoginModule (`keyTab`, `principal`). Without a key table the
        ticket cache of `kinit` is used. Raises UsageError without a ticket."""
        self.is_complete = False
        try:
            target = gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service)
            self._context = gssapi.SecurityContext(
                name=target,
                creds=_credentials(options or {}),
                mech=gssapi.MechType.kerberos,
                flags=[gssapi.RequirementFlag.mutual_authentication],
                usage="initiate",
            )
        except GSSError as error:
            raise UsageError(f"GSSAPI: no ticket for {service}@{host}: {error}") from None

    def step(self, challenge: bytes) -> bytes:
        """The next token. Raises KafkaError(SASL_AUTHENTICATION_FAILED)."""
        try:
            if not self._context.complete:
                token = self._context.step(challenge or None)
                return bytes(token or b"")
            offer = self._context.unwrap(challenge).message
            if len(offer) != len(CHOICE) or not offer[0] & NO_LAYER:
                raise KafkaError(
                    ErrorCode.SASL_AUTHENTICATION_FAILED, "the broker insists on a security layer"
                )
            self.is_complete = True
            return bytes(self._context.wrap(CHOICE, False).message)
        except GSSError as error:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"GSSAPI: {error}") from None


def _credentials(options: Mapping[str, str]) -> Any:
    """Those of a key table; None: the ticket cache."""
    key_table = options.get("keyTab")
    if not key_table:
        return None
    name = None
    if options.get("principal"):
        name = gssapi.Name(options["principal"], gssapi.NameType.kerberos_principal)
    store = {"client_keytab": key_table, "ccache": f"MEMORY:{options.get('principal', '')}"}
    return gssapi.Credentials(name=name, usage="initiate", store=store)
