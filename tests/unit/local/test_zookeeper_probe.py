"""When the embedded ZooKeeper counts as ready: not as soon as it accepts connections."""

from __future__ import annotations

import socket
import threading

import pytest

from headwater.local.zookeeper import is_serving


@pytest.mark.parametrize(("reply", "serves"), [(b"rw", True), (b"null", False), (b"", False)])
def test_it_is_ready_when_it_opens_sessions(reply: bytes, serves: bool) -> None:
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                asked.append(connection.recv(100))
                connection.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        assert is_serving("127.0.0.1", server.getsockname()[1]) is serves
        thread.join()
    assert asked == [b"isro"]


def test_it_is_not_ready_while_it_accepts_and_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_serving("127.0.0.1", port)
    assert not is_serving("127.0.0.1", port)
