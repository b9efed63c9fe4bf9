"""The source of a client's OAuth tokens: a file, or an endpoint that grants client credentials.

A gateway that was given its user's token has it as `token="..."` of OAuthBearerLoginModule.
`sasl.oauthbearer.token.endpoint.url` names either (KIP-768). A granted token is used for four
fifths of its lifetime, then a new one is asked for.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

from headwater.clock import Clock
from headwater.errors import UsageError
from headwater.security.https_request import check_https_url, https_request
from headwater.security.tls_context import client_context
from headwater.system import SystemClock

ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE = "sasl.oauthbearer.scope"
USED_SHARE = 0.8
LIFETIME_S = 300.0
"""Of a token whose endpoint tells no lifetime."""

TokenSource = Callable[[], str]


def token_source(
    properties: Mapping[str, str], options: Mapping[str, str] | None = None
) -> TokenSource:
    """The source that a client's properties name; `options` are those of OAuthBearerLoginModule.

    Raises UsageError that names the key and a remedy.
    """
    jaas = options or {}
    if token := jaas.get("token", ""):
        return lambda: token
    url = properties.get(ENDPOINT, "").strip()
    if not url:
        raise UsageError(f"OAUTHBEARER needs a token: set {ENDPOINT} to https://... or file:///...")
    if urlsplit(url).scheme == "file":
        return FileToken(unquote(urlsplit(url).path))
    check_https_url(ENDPOINT, url)
    client_id = properties.get(CLIENT_ID) or jaas.get("clientId", "")
    secret = properties.get(CLIENT_SECRET) or jaas.get("clientSecret", "")
    for key, text in ((CLIENT_ID, client_id), (CLIENT_SECRET, secret)):
        if not text:
            raise UsageError(f"{key} is not set: {ENDPOINT} grants tokens to known clients only")
    scope = properties.get(SCOPE) or jaas.get("scope", "")
    tls = {name: text for name, text in (*properties.items(), *jaas.items()) if name[:4] == "ssl."}
    return ClientCredentialsToken(url, client_id, secret, scope, client_context(tls))


class FileToken:
    """The token in a file, which another process may renew: read for every connection."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self) -> str:
        """The token. Raises UsageError."""
        try:
            return Path(self._path).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{ENDPOINT}: {self._path} has no token: {error}") from None


class ClientCredentialsToken:
    """Tokens of the client_credentials grant (RFC 6749, 4.4). Threads may share it."""

    def __init__(
        self,
        url: str,
        client_id: str,
        secret: str,
        scope: str,
        context: ssl.SSLContext,
        clock: Clock | None = None,
    ) -> None:
        self._url = url
        self._context = context
        self._clock = clock or SystemClock()
        login = f"{quote_plus(client_id)}:{quote_plus(secret)}".encode()
        self._headers = {
            "Authorization": f"Basic {base64.b64encode(login).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        fields = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
        self._body = urlencode(fields).encode()
        self._lock = threading.Lock()
        self._token = ""
        self._used_until_s = 0.0

    def __call__(self) -> str:
        """The token. It blocks while it asks for one. Raises HttpsError, UsageError."""
        with self._lock:
            if not self._token or self._clock.monotonic() >= self._used_until_s:
                self._ask()
            return self._token

    def _ask(self) -> None:
        asked_s = self._clock.monotonic()
        answer = https_request(self._url, self._context, body=self._body, headers=self._headers)
        try:
            row = json.loads(answer)
            token, lifetime_s = row["access_token"], float(row.get("expires_in", LIFETIME_S))
            if not isinstance(token, str):
                raise TypeError("access_token is no text")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            where = urlsplit(self._url).netloc
            raise UsageError(f"{ENDPOINT}: the answer of {where} has no access_token") from None
        self._token, self._used_until_s = token, asked_s + USED_SHARE * lifetime_s
