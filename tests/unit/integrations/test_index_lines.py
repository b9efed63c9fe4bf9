"""The bulk requests of jobs/integrations/elk/index_lines.py, against a host that notes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from pyspark.sql import Row

from integrations.elk.index_lines import BULK_DOCUMENTS, BulkError, bulk_sender

NOBODY = "http://127.0.0.1:1"


class Host(ThreadingHTTPServer):
    """A search node: keeps the bodies that it got, and answers as it is told."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.bodies: list[list[Any]] = []
        self.status = 200
        self.refused: dict[str, str] = {}


class Handler(BaseHTTPRequestHandler):
    """One _bulk request."""

    server: Host

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        assert text.endswith("\n") and self.path == "/_bulk"
        lines = [json.loads(line) for line in text.splitlines()]
        self.server.bodies.append(lines)
        items = []
        for action in lines[::2]:
            row = {"_id": action["index"]["_id"], "status": 201}
            if row["_id"] in self.server.refused:
                row |= {"status": 400, "error": self.server.refused[row["_id"]]}
            items.append({"index": row})
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(json.dumps({"items": items}).encode())

    def log_message(self, *_: object) -> None:
        """Nothing to stderr."""


@pytest.fixture
def host() -> Iterator[Host]:
    with Host() as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def rows(count: int) -> list[Row]:
    return [Row(id=f"mylog-0-{n}", line=json.dumps({"message": f"ü {n}"})) for n in range(count)]


def test_each_document_has_its_id_and_requests_are_bounded(host: Host) -> None:
    bulk_sender([host.url], "mylog")(rows(BULK_DOCUMENTS + 1))
    assert [len(body) for body in host.bodies] == [2 * BULK_DOCUMENTS, 2]
    assert host.bodies[1] == [
        {"index": {"_index": "mylog", "_id": f"mylog-0-{BULK_DOCUMENTS}"}},
        {"message": f"ü {BULK_DOCUMENTS}"},
    ]


def test_no_rows_no_request(host: Host) -> None:
    bulk_sender([host.url], "mylog")([])
    assert host.bodies == []


def test_the_next_host_is_asked_when_one_does_not_answer(host: Host) -> None:
    bulk_sender([NOBODY, host.url], "mylog")(rows(1))
    assert len(host.bodies) == 1
    with pytest.raises(BulkError, match=f"no host answers: {NOBODY}: .*refused"):
        bulk_sender([NOBODY], "mylog")(rows(1))


def test_a_refused_document_fails_the_batch_and_is_named(host: Host) -> None:
    host.refused = {"mylog-0-1": "mapper_parsing_exception"}
    told = "1 documents refused, first mylog-0-1: mapper_parsing_exception"
    with pytest.raises(BulkError, match=told):
        bulk_sender([host.url], "mylog")(rows(3))


def test_a_refused_request_is_not_tried_elsewhere(host: Host) -> None:
    host.status = 413
    with pytest.raises(BulkError, match=f"{host.url}: 413"):
        bulk_sender([host.url, host.url], "mylog")(rows(1))
    assert len(host.bodies) == 1
