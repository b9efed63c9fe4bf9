"""Headers of every reply that narrow what a browser does with it."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Send

PAGES_POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
API_POLICY = "default-src 'none'; frame-ancestors 'none'"
EVERYWHERE = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With no-referrer a browser sends "Origin: null" from our own pages, too.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=()",
}
STRICT_TRANSPORT = "max-age=31536000"


def with_security_headers(send: Send, *, is_page: bool, is_tls: bool) -> Send:
    """`send` with these headers; what a part sets itself stays."""
    policy = PAGES_POLICY if is_page else API_POLICY

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.setdefault("Content-Security-Policy", policy)
            headers.setdefault("Cache-Control", "no-store")
            for name, value in EVERYWHERE.items():
                headers.setdefault(name, value)
            if is_tls:
                headers.setdefault("Strict-Transport-Security", STRICT_TRANSPORT)
        await send(message)

    return sent
