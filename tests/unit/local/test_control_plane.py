"""Control messages over real gRPC on loopback: both clients against the server."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import grpc
import pytest

from blocking_control import ControlClient
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.ports.control import ControlHandler, ControlUnavailableError
from headwater.wire.control import (
    FORMAT_VERSION,
    AllocateProducerIdsReply,
    AllocateProducerIdsRequest,
    ControlledShutdownReply,
    ControlledShutdownRequest,
    StatusReply,
    StatusRequest,
)
from headwater.wire.control_payload import (
    OLD_FORMAT_CALLS_MAX,
    ControlFormatError,
    NewerFormatError,
    PeerFormats,
    format_detail,
    format_of,
    method_path,
    pack,
    unpack,
)
from headwater.wire.schema import Message, wire
from headwater_broker.controller.control_client import GrpcControlCalls
from headwater_broker.network.control_grpc import ControlServer
from self_signed import CERTIFICATE, KEY


async def _status(_request: Message) -> Message:
    return StatusReply(ready=True, broker_id=7, document='{"format":1}')


async def _refuse(_request: Message) -> Message:
    raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, "broker 7 is at epoch 12, not 11")


async def _hang(_request: Message) -> Message:
    await asyncio.Event().wait()
    return ControlledShutdownReply()


HANDLERS = {
    StatusRequest: _status,
    AllocateProducerIdsRequest: _refuse,
    ControlledShutdownRequest: _hang,
}


@contextmanager
def serving_on_a_loop(
    make: Callable[[asyncio.AbstractEventLoop], ControlServer],
) -> Iterator[ControlServer]:
    """A control server whose handlers run on a loop in another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = make(loop)
    server.start()
    try:
        yield server
    finally:
        server.stop(0)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def serving(
    handlers: Mapping[type[Message], ControlHandler],
    credentials: grpc.ServerCredentials | None = None,
) -> Iterator[ControlServer]:
    """A control server with these handlers."""
    with serving_on_a_loop(
        lambda loop: ControlServer(handlers, loop, credentials=credentials)
    ) as server:
        yield server


@pytest.fixture
def server() -> Iterator[ControlServer]:
    with serving(HANDLERS) as made:
        yield made


def address(server: ControlServer) -> str:
    return f"127.0.0.1:{server.port}"


def test_the_blocking_client_gets_the_reply(server: ControlServer) -> None:
    with ControlClient(address(server)) as client:
        assert client.status().broker_id == 7


def test_calls_go_over_tls_where_both_sides_have_credentials() -> None:
    """The seam for mutual TLS between brokers: each side takes its credentials in one place."""
    shown = grpc.ssl_server_credentials([(KEY, CERTIFICATE)])
    trusted = grpc.ssl_channel_credentials(CERTIFICATE)

    async def run(where: str) -> None:
        calls, plain = GrpcControlCalls(lambda: trusted), GrpcControlCalls()
        reply = await calls.call(f"tls://{where}", StatusRequest(), StatusReply, 5_000)
        assert reply.broker_id == 7
        with pytest.raises(ControlUnavailableError):
            await plain.call(where, StatusRequest(), StatusReply, 5_000)
        await calls.close()
        await plain.close()

    with serving(HANDLERS, shown) as server:
        with ControlClient(address(server), trusted) as client:
            assert client.status().broker_id == 7
        with ControlClient(address(server)) as client, pytest.raises(ControlUnavailableError):
            client.status()
        asyncio.run(run(address(server)))


def test_a_kafka_error_crosses_the_control_plane(server: ControlServer) -> None:
    request = AllocateProducerIdsRequest(broker_id=7, broker_epoch=11)
    with ControlClient(address(server)) as client, pytest.raises(KafkaError) as caught:
        client.call(request, AllocateProducerIdsReply)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert caught.value.detail == "broker 7 is at epoch 12, not 11"


def test_a_late_reply_is_unavailable(server: ControlServer) -> None:
    with ControlClient(address(server)) as client, pytest.raises(ControlUnavailableError):
        client.call(ControlledShutdownRequest(), ControlledShutdownReply, timeout_ms=50)


def test_the_async_client_answers_refuses_and_times_out(server: ControlServer) -> None:
    async def run() -> None:
        calls = GrpcControlCalls()
        where = address(server)
        replies = await asyncio.gather(
            *(calls.call(where, StatusRequest(), StatusReply, 5_000) for _ in range(50))
        )
        assert {r.broker_id for r in replies} == {7}
        with pytest.raises(KafkaError):
            request = AllocateProducerIdsRequest(broker_id=7, broker_epoch=11)
            await calls.call(where, request, AllocateProducerIdsReply, 5_000)
        with pytest.raises(ControlUnavailableError):
            await calls.call(where, ControlledShutdownRequest(), ControlledShutdownReply, 50)
        await calls.close()
        with pytest.raises(ControlUnavailableError):
            await calls.call(where, StatusRequest(), StatusReply, 5_000)

    asyncio.run(run())


@pytest.mark.parametrize("is_underway", [True, False])
def test_a_call_given_up_does_not_run_on(is_underway: bool) -> None:
    began, ended = threading.Event(), threading.Event()

    async def hang(_request: Message) -> Message:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ControlledShutdownReply()

    async def give_up(where: str) -> None:
        calls = GrpcControlCalls()
        task = asyncio.create_task(
            calls.call(where, ControlledShutdownRequest(), ControlledShutdownReply, 60_000)
        )
        if is_underway:
            await asyncio.to_thread(began.wait, 10)
        else:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if is_underway or await asyncio.to_thread(began.wait, 0.2):
            assert await asyncio.to_thread(ended.wait, 10), "it hangs on where it is served"
        await calls.close()

    with serving({ControlledShutdownRequest: hang}) as server:
        asyncio.run(give_up(address(server)))


def test_a_call_given_up_before_the_handler_is_tied_to_it_does_not_run_on() -> None:
    began = threading.Event()

    class Over:
        def add_callback(self, _callback: object) -> bool:
            assert began.wait(10)
            return False  # grpcio: the call has ended, and this will not be called

    async def run() -> None:
        server = ControlServer({}, asyncio.get_running_loop())

        async def hang() -> Message:
            began.set()
            await asyncio.Event().wait()
            return ControlledShutdownReply()

        answer = await asyncio.to_thread(server._run, hang(), Over())  # type: ignore[arg-type]
        with pytest.raises(asyncio.CancelledError):
            await asyncio.to_thread(answer.result, 10)

    asyncio.run(run())


def test_a_broker_that_hangs_delays_no_call_to_another(server: ControlServer) -> None:
    async def run(other: str) -> None:
        calls = GrpcControlCalls()
        hang = (
            calls.call(
                address(server), ControlledShutdownRequest(), ControlledShutdownReply, 60_000
            )
            for _ in range(200)
        )
        hanging = [asyncio.create_task(call) for call in hang]
        await asyncio.sleep(0)  # all are on their way
        async with asyncio.timeout(10):
            for _ in range(50):
                assert (await calls.call(other, StatusRequest(), StatusReply, 10_000)).ready
        assert not any(task.done() for task in hanging)
        await calls.close()
        async with asyncio.timeout(10):
            ends = await asyncio.gather(*hanging, return_exceptions=True)
        assert {type(end) for end in ends} == {ControlUnavailableError}

    with serving(HANDLERS) as another:
        asyncio.run(run(address(another)))


def test_a_call_that_is_given_up_while_the_client_closes_is_given_up(server: ControlServer) -> None:
    async def run() -> None:
        calls = GrpcControlCalls()
        tasks = [
            asyncio.create_task(
                calls.call(
                    address(server), ControlledShutdownRequest(), ControlledShutdownReply, 60_000
                )
            )
            for _ in range(2)
        ]
        await calls.call(address(server), StatusRequest(), StatusReply, 5_000)
        tasks[0].cancel()
        await calls.close()
        await calls.close()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(end) for end in ends] == [asyncio.CancelledError, ControlUnavailableError]

    asyncio.run(run())


EXITS = """
import asyncio, sys
from headwater.wire.control import ControlledShutdownReply as Reply
from headwater.wire.control import ControlledShutdownRequest as Request
from headwater.wire.control import StatusReply, StatusRequest
from headwater_broker.controller.control_client import GrpcControlCalls

async def run(where, is_closed):
    calls = GrpcControlCalls()
    hang = [calls.call(where, Request(), Reply, 60_000) for _ in range(20)]
    hanging = [asyncio.create_task(call) for call in hang]
    await calls.call(where, StatusRequest(), StatusReply, 30_000)
    if is_closed:
        await calls.close()
        ends = await asyncio.gather(*hanging, return_exceptions=True)
        print({type(end).__name__ for end in ends})

asyncio.run(run(sys.argv[1], sys.argv[2] == "closed"))
"""


@pytest.mark.parametrize(
    ("how", "said"), [("closed", "{'ControlUnavailableError'}\n"), ("left", "")]
)
def test_a_process_exits_while_its_calls_hang(server: ControlServer, how: str, said: str) -> None:
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", EXITS, address(server), how],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")
    assert time.monotonic() - start < 50, "it waited for the calls"


def test_a_call_on_a_channel_closed_meanwhile_is_unavailable(server: ControlServer) -> None:
    async def run() -> None:
        calls = GrpcControlCalls()
        where = address(server)
        await calls.call(where, StatusRequest(), StatusReply, 5_000)
        await calls._peer(where).channel.close()
        with pytest.raises(ControlUnavailableError):
            await calls.call(where, StatusRequest(), StatusReply, 5_000)
        await calls.close()

    asyncio.run(run())


def test_a_port_without_a_listener_is_unavailable_at_once() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    async def run() -> None:
        calls = GrpcControlCalls()
        with pytest.raises(ControlUnavailableError):
            await calls.call(f"127.0.0.1:{port}", StatusRequest(), StatusReply, 10_000)
        await calls.close()

    asyncio.run(run())


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        loop = asyncio.new_event_loop()
        with pytest.raises(UsageError, match=f"control port {port}"):
            ControlServer(HANDLERS, loop, port=port).start()
        loop.close()


def test_an_unknown_format_version_is_refused() -> None:
    payload = bytearray(pack(StatusRequest()))
    payload[1] = 9
    with pytest.raises(ControlFormatError, match=r"format 9.*run the newer Headwater here"):
        unpack(StatusRequest, bytes(payload))


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStatusRequest(StatusRequest):
    """Of a planted next format: one field that old brokers may miss, one that they must know."""

    versions: ClassVar[tuple[int, int]] = (0, FORMAT_VERSION + 1)
    hint: str = wire("string", f"{FORMAT_VERSION + 1}+", ignorable=True)
    condition: str = wire("string", f"{FORMAT_VERSION + 1}+")


NextStatusRequest.__name__ = StatusRequest.__name__  # the gRPC method


def test_a_newer_client_speaks_the_older_format_to_an_older_broker(server: ControlServer) -> None:
    request, where = NextStatusRequest(hint="x"), address(server)
    with ControlClient(where) as client:
        assert client.call(request, StatusReply).broker_id == 7
        with pytest.raises(ControlUnavailableError, match="condition cannot be sent in version 0"):
            client.call(NextStatusRequest(condition="must"), StatusReply)

    async def run() -> None:
        calls = GrpcControlCalls()
        for _ in range(3):
            assert (await calls.call(where, request, StatusReply, 5_000)).broker_id == 7
        with pytest.raises(ControlUnavailableError, match="run the newer Headwater there"):
            await calls.call(where, NextStatusRequest(condition="must"), StatusReply, 5_000)
        await calls.close()

    asyncio.run(run())


def test_the_newest_format_is_tried_again_after_a_while() -> None:
    formats = PeerFormats()
    request = NextStatusRequest()
    refusal = format_detail(NewerFormatError("StatusRequest", 1, 0))
    first = formats.pack("a", request)
    assert format_of(first) == 1
    assert formats.is_older("a", first, 0, refusal)
    spoken = [format_of(formats.pack("a", request)) for _ in range(OLD_FORMAT_CALLS_MAX + 1)]
    assert spoken == [0] * OLD_FORMAT_CALLS_MAX + [1]
    assert format_of(formats.pack("b", request)) == 1, "another peer"
    assert not formats.is_older("a", pack(request, 0), 0, refusal), "it is refused for no format"
    assert not formats.is_older("a", first, 1, refusal), "that old is not spoken any more"


def test_a_reply_comes_in_the_format_of_its_request(server: ControlServer) -> None:
    payload = pack(NextStatusRequest(), 0)
    with grpc.insecure_channel(address(server)) as channel:
        answer = channel.unary_unary(method_path(StatusRequest))(payload, timeout=5)
    assert format_of(answer) == 0
