"""kazoo's replies are handled on the thread that received them, and its waits use no epoll."""

from __future__ import annotations

import selectors
import socket
import threading

import pytest

from headwater_broker.metadata.zk_handler import DirectCallbackHandler


def test_callbacks_run_on_the_thread_that_received_the_reply() -> None:
    handler = DirectCallbackHandler()
    handler.start()
    try:
        called: list[tuple[int, object]] = []
        result = handler.async_result()
        result.rawlink(lambda r: called.append((threading.get_ident(), r.get_nowait())))
        result.set("answer")
        assert called == [(threading.get_ident(), "answer")]
    finally:
        handler.stop()


def test_a_callback_that_fails_leaves_the_connection_and_the_others_alone() -> None:
    handler = DirectCallbackHandler()
    handler.start()
    try:
        called: list[bool] = []
        result = handler.async_result()
        result.rawlink(lambda _: 1 // 0)
        result.rawlink(lambda r: called.append(r.successful()))
        result.set_exception(OSError("lost"))
        assert called == [False]
    finally:
        handler.stop()


def test_waits_for_sockets_without_an_epoll_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    def epoll() -> None:
        raise AssertionError("a selector that needs system calls of its own")

    monkeypatch.setattr(selectors, "DefaultSelector", epoll)
    handler = DirectCallbackHandler()
    here, there = socket.socketpair()
    with here, there:
        assert handler.select([here], [], [], 0) == ([], [], [])
        there.send(b"x")
        assert handler.select([here, there], [], [], 1) == ([here], [], [])
        assert handler.select([], [here], [], 1) == ([], [here], [])
    with pytest.raises(TypeError):
        handler.select([here], [], [], 0)
