"""The gRPC server of the control plane: its own port and threads, handlers on the broker's loop.

The one adapter of grpcio on the serving side. A gRPC thread decodes the request, runs its handler
on the broker's loop and waits for the result: only the loop touches partition state, and control
requests get through while the data plane is full.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from typing import Any, Protocol, cast
from urllib.parse import unquote

import grpc

from headwater.errors import HeadwaterError, KafkaError, UsageError
from headwater.ports.control import ControlHandler
from headwater.wire.control import ForwardRequest
from headwater.wire.control_payload import (
    SERVER_OPTIONS,
    SERVICE,
    ControlFormatError,
    NewerFormatError,
    error_detail,
    format_detail,
    format_of,
    pack,
    unpack,
)
from headwater.wire.schema import Message
from headwater_broker.network.control_threads import ControlThreads

THREADS_MAX = 64
"""Threads are started only when calls wait: an idle broker has a few."""
FORWARDED_IN_FLIGHT_MAX = 40
"""Forwarded admin requests may wait for seconds; they must leave threads to the controller."""
HANDSHAKE_TIMEOUT_S = 10.0
"""A connection that has not got as far as HTTP/2 by then is closed."""

Admit = Callable[[str, str], None]
"""(client certificate in PEM, host): raises HeadwaterError for a caller that is no broker."""

logger = logging.getLogger(__name__)


class PemKeys(Protocol):
    """A private key, its certificate chain, and the authorities that are trusted, in PEM."""

    @property
    def key(self) -> bytes:
        """The private key."""
        ...

    @property
    def chain(self) -> bytes:
        """Its certificates, its own first."""
        ...

    @property
    def trusted(self) -> bytes:
        """The authorities of clients."""
        ...


def mutual_tls(now: Callable[[], PemKeys]) -> grpc.ServerCredentials:
    """A port whose clients must show a certificate that one of `trusted` has signed.

    Each handshake uses the keys of that moment.
    """
    used = now()

    def changed() -> Any:
        nonlocal used
        found = now()
        if found is used:
            return None  # gRPC goes on with the last ones
        used = found
        return _configuration(found)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(used), changed, require_client_authentication=True
    )


def _configuration(keys: PemKeys) -> Any:
    return grpc.ssl_server_certificate_configuration([(keys.key, keys.chain)], keys.trusted)


class ControlServer:
    """The control port of one broker."""

    def __init__(
        self,
        handlers: Mapping[type[Message], ControlHandler],
        loop: asyncio.AbstractEventLoop,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        credentials: grpc.ServerCredentials | None = None,
        admit: Admit | None = None,
        handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S,
    ) -> None:
        """`credentials`: None is a port without TLS. `admit` runs on the loop before each call."""
        self._threads = ControlThreads(THREADS_MAX, loop.time)
        self._options = (
            *SERVER_OPTIONS,
            ("grpc.server_handshake_timeout_ms", int(handshake_timeout_s * 1000)),
        )
        self._admit = admit
        self._credentials = credentials
        self.host = host
        self.port = port
        self._handlers = dict(handlers)
        self._loop = loop
        self._forwarded = threading.BoundedSemaphore(FORWARDED_IN_FLIGHT_MAX)
        self._server: grpc.Server | None = None

    def start(self) -> int:
        """Bind and serve; the port. Raises UsageError when it is taken."""
        server = grpc.server(self._threads, options=self._options)
        methods = {cls.__name__: self._method(cls, run) for cls, run in self._handlers.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        address = f"{self.host}:{self.port}"
        try:
            bound: int = (
                server.add_insecure_port(address)
                if self._credentials is None
                else server.add_secure_port(address, self._credentials)
            )
        except RuntimeError:
            bound = 0
        if bound == 0:
            server.stop(None)
            raise UsageError(
                f"control port {self.port} on {self.host} is in use: "
                "stop the process that holds it, or choose another port"
            )
        server.start()
        self._server = server
        self.port = bound
        return bound

    def stop(self, grace_s: float = 0.5) -> None:
        """Refuse new calls at once; calls in flight have `grace_s`. Must not run on the loop."""
        if self._server is not None:
            self._server.stop(grace_s).wait(grace_s + 1.0)
            self._server = None

    async def stop_async(self, grace_s: float = 0.5) -> None:
        """`stop` off the loop: the calls in flight need the loop to complete."""
        await asyncio.to_thread(self.stop, grace_s)

    def _method(self, cls: type[Message], handler: ControlHandler) -> grpc.RpcMethodHandler:
        def serve(payload: bytes, context: grpc.ServicerContext) -> bytes:
            return self._serve(cls, handler, payload, context)

        limited = self._limited(serve) if cls is ForwardRequest else serve

        def run(payloads: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
            # First: strangers' bytes are not decoded, nor waited for.
            self._check_caller(cls, context)
            return limited(self._received(payloads, context), context)

        # Callers send one message. Of a stream it is taken here, not before.
        return grpc.stream_unary_rpc_method_handler(run)

    def _received(self, payloads: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        """The message of a call, once it is here."""
        with self._threads.awaiting(context.cancel):
            payload = next(payloads, None)
        if payload is None:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a call without a message")
            raise AssertionError("context.abort returned")
        return payload

    def _run(
        self, work: Coroutine[Any, Any, Message], context: grpc.ServicerContext
    ) -> Future[Message]:
        """Run `work` on the loop.

        The future is set within the turn of the loop in which `work` ends: a task's own future
        takes another turn, and turns are long while the data plane is full.
        """
        answer: Future[Message] = Future()

        async def run() -> None:
            answer.set_result(await work)

        def ended(task: Future[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                answer.set_exception(error)
            else:
                answer.cancel()  # does nothing when the future is set

        task = asyncio.run_coroutine_threadsafe(run(), self._loop)
        task.add_done_callback(ended)
        # When the caller gives up, so does the handler. It may have given up already.
        if not context.add_callback(task.cancel):
            task.cancel()
        return answer

    def _limited(self, serve: Callable[..., bytes]) -> Callable[..., bytes]:
        def run(payload: bytes, context: grpc.ServicerContext) -> bytes:
            if not self._forwarded.acquire(blocking=False):
                text = f"{FORWARDED_IN_FLIGHT_MAX} forwarded requests are in flight: try again"
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
            try:
                return serve(payload, context)
            finally:
                self._forwarded.release()

        return run

    def _check_caller(self, cls: type[Message], context: grpc.ServicerContext) -> None:
        """Refuse a caller that is no broker; only the loop may ask the authorizer."""
        admit = self._admit
        if admit is None:
            return
        certificate = context.auth_context().get("x509_pem_cert", [b""])[0].decode()
        host = _host_of(context.peer())

        async def check() -> None:
            admit(certificate, host)

        try:
            asyncio.run_coroutine_threadsafe(check(), self._loop).result()
        except (HeadwaterError, CancelledError) as error:
            logger.warning("%s of %s refused: %s", cls.__name__, host, error)
            context.abort(grpc.StatusCode.PERMISSION_DENIED, f"{cls.__name__}: {error}")

    def _serve(
        self,
        cls: type[Message],
        handler: ControlHandler,
        payload: bytes,
        context: grpc.ServicerContext,
    ) -> bytes:
        try:
            request = unpack(cls, payload)
        except NewerFormatError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, format_detail(error))
        except ControlFormatError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        try:
            work = cast("Coroutine[Any, Any, Message]", handler(request))
            return pack(self._run(work, context).result(), format_of(payload))
        except KafkaError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, error_detail(error))
        except (HeadwaterError, CancelledError) as error:
            context.abort(grpc.StatusCode.UNAVAILABLE, f"{cls.__name__}: {error!r}")
        except Exception as error:
            logger.exception("control handler of %s failed", cls.__name__)
            context.abort(grpc.StatusCode.INTERNAL, f"{cls.__name__}: {error!r}")
        raise AssertionError("context.abort returned")


def _host_of(peer: str) -> str:
    """The IP address in gRPC's `ipv4:127.0.0.1:7` or `ipv6:%5B::1%5D:7`."""
    address = unquote(peer.partition(":")[2])
    return address.rpartition(":")[0].strip("[]")
