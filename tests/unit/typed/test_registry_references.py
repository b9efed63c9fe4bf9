"""References of a registry's schemas: a chain of them without end does no harm."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from headwater_tier.typed.registry_client import REFERENCES_DEPTH_MAX, RegistryClient


class Endless(BaseHTTPRequestHandler):
    """A registry in which each version refers to the next one."""

    def do_GET(self) -> None:
        number = int(self.path.rpartition("/")[2])
        reference = {"name": f"r{number}", "subject": "s", "version": number + 1}
        body = json.dumps({"schema": '"int"', "references": [reference]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def test_a_chain_of_references_without_end_is_cut() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            found = RegistryClient(f"http://127.0.0.1:{server.server_port}").by_id(7)
        finally:
            server.shutdown()
    assert found is not None
    assert len(found.references) == REFERENCES_DEPTH_MAX + 1
