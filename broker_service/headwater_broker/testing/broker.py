"""A real broker in the process of a test, on a thread and a loop of its own.

    with InProcessBroker() as broker:
        topic = broker.topic()
        with broker.producer() as producer:
            producer.send(topic, b"value").result()

It is `app.wiring` and `app.lifecycle` as they are in production: log, replicas, controller,
coordinators, handlers. Only what is outside a broker is in memory (`testing.environment`). The
SDK's clients connect by pairs of sockets, others by a port of 127.0.0.1, if one is asked for.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from headwater import in_process
from headwater.errors import ErrorCode, HeadwaterError, KafkaError, UsageError
from headwater.testing.clocks import MovableClock
from headwater.wire.apis.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headwater.wire.schema import decode, encode
from headwater_broker.api.registry import load_handlers
from headwater_broker.app.config import from_properties
from headwater_broker.app.lifecycle import build, live
from headwater_broker.app.wiring import BrokerServer
from headwater_broker.testing import faults
from headwater_broker.testing.environment import (
    MemoryCleaning,
    MemoryDisk,
    in_process_environment,
)
from headwater_broker.testing.loop import InProcessLoop

if TYPE_CHECKING:
    from headwater import Admin, Consumer, Producer, ShareConsumer
    from headwater.aio import AsyncAdmin, AsyncConsumer, AsyncProducer

T = TypeVar("T")
START_S = 30.0
STOP_S = 30.0
CALL_S = 30.0
CREATE_TOPIC_MS = 30_000
TURNS = 3
"""Turns of the loop after the clock was moved: timers run in the first, what they wake in the next.
"""
MEMORY_FOLDER = "/headwater"
PORT = 9092
"""Of the address in this process; it is a name, nothing is bound."""

PROPERTIES = {
    "broker.id": "1",
    "zookeeper.connect": "in-process:1",
    "control.listener": "127.0.0.1:1",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PORT:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
"""Settings that differ from a broker's defaults: a cluster of one, groups that settle at once."""

_numbers = count(1)


class BrokerFailedError(HeadwaterError):
    """The broker did not start, has ended, or has logged errors that the test did not expect."""


class Undo:
    """Ends a fault: call it, or leave a `with` block."""

    def __init__(self, undo: Callable[[], None]) -> None:
        self._undo = undo

    def __call__(self) -> None:
        """End the fault."""
        self._undo()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self._undo()


class InProcessBroker:
    """Broker 1 of a cluster of one. Any thread may use it."""

    def __init__(
        self,
        *,
        files: Literal["memory", "disk"] = "memory",
        folder: str | None = None,
        ports: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """`files="disk"`: logs are files below `folder`, and reads of them go by sendfile. `ports`:
        also listen on a port of 127.0.0.1, for clients that are not the SDK (`tcp_bootstrap`).
        `properties`: a broker's keys, over the defaults. Raises UsageError for bad ones."""
        if files not in ("memory", "disk"):
            raise UsageError(f"files is {files!r}: give 'memory' or 'disk'")
        if (files == "disk") is (folder is None):
            raise UsageError("files='disk' needs a folder, files='memory' takes none")
        self.name = f"headwater-broker-{next(_numbers)}"
        self.host = self.name + in_process.SUFFIX
        self.clock = MovableClock()
        """The broker's time; `advance` moves it."""
        self.errors: list[str] = []
        """Errors that the broker has logged. `check` raises while there is any: a test that
        expects one clears the list."""
        self._on_disk = files == "disk"
        self._has_port = ports
        listeners = [f"PLAINTEXT://{self.host}:{PORT}"]
        if ports:
            listeners.append("PORT://127.0.0.1:0")
        self._config = from_properties(
            {
                **PROPERTIES,
                "listeners": ",".join(listeners),
                "log.dirs": folder or MEMORY_FOLDER,
                **(properties or {}),
            }
        )
        self._topics = count(1)
        self._clients: list[Any] = []
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._end_reason = ""
        self._thread: threading.Thread | None = None
        self._loop: InProcessLoop | None = None
        self._server: BrokerServer | None = None
        self._standstill: faults.Standstill | None = None
        self._lost_replies: faults.LostReplies | None = None
        self._stopping: asyncio.Future[str] | None = None

    # --- life

    def start(self) -> InProcessBroker:
        """Start; returns when the broker is ready. Raises BrokerFailedError."""
        if self._thread is not None:
            raise UsageError("this broker was started before: make another one")
        load_handlers()
        self._log = _ErrorLog(self.name, self.errors)
        logging.getLogger("headwater_broker").addHandler(self._log)
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()
        if not self._ready.wait(START_S):
            self.stop()
            raise BrokerFailedError(f"the broker was not ready within {START_S:g} s")
        if self._failure is not None:
            self._forget()
            raise BrokerFailedError(f"the broker did not start: {self._failure}") from self._failure
        return self

    def stop(self) -> None:
        """Stop the clients that this object made, then the broker, and wait for its threads. A
        second call does nothing."""
        thread, loop = self._thread, self._loop
        if thread is None or not thread.is_alive():
            return
        self.resume()
        for client in self._clients:
            client.close()
        assert loop is not None
        loop.call_soon_threadsafe(self._ask_to_stop, "the test is over")
        thread.join(STOP_S)
        if thread.is_alive():
            raise BrokerFailedError(f"the broker did not stop within {STOP_S:g} s")
        self._forget()

    def _forget(self) -> None:
        logging.getLogger("headwater_broker").removeHandler(self._log)

    def __enter__(self) -> InProcessBroker:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raises BrokerFailedError when the broker has failed or logged errors."""
        if self._failure is not None:
            raise BrokerFailedError(f"the broker has failed: {self._failure}") from self._failure
        if self._end_reason:
            raise BrokerFailedError(f"the broker has stopped by itself: {self._end_reason}")
        if self.errors:
            raise BrokerFailedError("the broker logged errors:\n" + "\n".join(self.errors))

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: InProcessLoop(self.clock)) as runner:
                runner.run(self._live())
        except BaseException as error:  # noqa: BLE001 - it is raised where the test asks
            self._failure = error
        finally:
            self._ready.set()

    async def _live(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, InProcessLoop)
        self._loop = loop
        self._stopping = loop.create_future()
        self._standstill = faults.Standstill(loop)
        loop.set_exception_handler(self._loop_failed)
        environment = in_process_environment(
            self.clock, self.name, self._config.control_advertised, on_disk=self._on_disk
        )
        assert isinstance(environment.pool, ThreadPoolExecutor)
        loop.set_default_executor(environment.pool)
        server = await build(self._config, environment, self._stopped_itself)
        if isinstance(environment.files, MemoryDisk):
            server.cleaner.run_clean = MemoryCleaning(environment, environment.files)
        self._lost_replies = faults.LostReplies(server)
        self._server = server
        await live(server, lambda _announcement: self._ready.set(), self._stopping)

    def _ask_to_stop(self, reason: str) -> None:
        if self._stopping is not None and not self._stopping.done():
            self._stopping.set_result(reason)

    def _stopped_itself(self, reason: str) -> None:
        self._end_reason = reason
        self._ask_to_stop(reason)

    def _loop_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    def call(self, work: Callable[[BrokerServer], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine function of the broker's parts on its loop; the result. Raises
        BrokerFailedError when the broker does not run."""
        if self._standstill is not None and self._standstill.is_still:
            raise UsageError("the broker is paused: call resume() first")
        if self._thread is None or not self._thread.is_alive() or self._server is None:
            self.check()
            raise BrokerFailedError("the broker does not run: use `with`, or call start()")
        assert self._loop is not None
        future = asyncio.run_coroutine_threadsafe(work(self._server), self._loop)
        return future.result(CALL_S)

    # --- clients

    @property
    def bootstrap(self) -> str:
        """`bootstrap_servers` for clients of the SDK in this process."""
        return f"{self.host}:{PORT}"

    @property
    def tcp_bootstrap(self) -> str:
        """`bootstrap.servers` for any client. Raises UsageError without `ports`."""
        if not self._has_port:
            raise UsageError(
                "this broker listens on no port: make it with ports=True, or name the fixture "
                "headwater_bootstrap in the test"
            )
        assert self._server is not None
        return f"127.0.0.1:{self._server.ports.listeners['PORT']}"

    def producer(self, **options: Any) -> Producer:
        """A `headwater.Producer`, closed with the broker if the test does not."""
        from headwater import Producer  # noqa: PLC0415 - loads the client

        return self._keep(Producer(self.bootstrap, **options))

    def consumer(self, *topics: str, **options: Any) -> Consumer:
        """A `headwater.Consumer`, by default from the first record on; closed with the broker."""
        from headwater import Consumer  # noqa: PLC0415 - loads the client

        options.setdefault("auto_offset_reset", "earliest")
        return self._keep(Consumer(*topics, bootstrap_servers=self.bootstrap, **options))

    def share_consumer(self, *topics: str, **options: Any) -> ShareConsumer:
        """A `headwater.ShareConsumer`, closed with the broker. Where its group begins is the
        group's setting `share.auto.offset.reset`."""
        from headwater import ShareConsumer  # noqa: PLC0415 - loads the client

        return self._keep(ShareConsumer(*topics, bootstrap_servers=self.bootstrap, **options))

    def admin(self, **options: Any) -> Admin:
        """A `headwater.Admin`, closed with the broker."""
        from headwater import Admin  # noqa: PLC0415 - loads the client

        return self._keep(Admin(self.bootstrap, **options))

    def async_producer(self, **options: Any) -> AsyncProducer:
        """A `headwater.aio.AsyncProducer`: use it with `async with`."""
        from headwater.aio import AsyncProducer  # noqa: PLC0415 - loads the client

        return AsyncProducer(self.bootstrap, **options)

    def async_consumer(self, *topics: str, **options: Any) -> AsyncConsumer:
        """A `headwater.aio.AsyncConsumer`, by default from the first record on."""
        from headwater.aio import AsyncConsumer  # noqa: PLC0415 - loads the client

        options.setdefault("auto_offset_reset", "earliest")
        return AsyncConsumer(*topics, bootstrap_servers=self.bootstrap, **options)

    def async_admin(self, **options: Any) -> AsyncAdmin:
        """A `headwater.aio.AsyncAdmin`: use it with `async with`."""
        from headwater.aio import AsyncAdmin  # noqa: PLC0415 - loads the client

        return AsyncAdmin(self.bootstrap, **options)

    def _keep(self, client: T) -> T:
        self._clients.append(client)
        return client

    def topic(
        self,
        name: str | None = None,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic, by default under a new name; its name."""
        chosen = name or f"topic-{next(self._topics)}"
        self.call(lambda server: _create_topic(server, chosen, partitions, dict(configs or {})))
        return chosen

    # --- faults

    def advance(self, seconds: float) -> None:
        """Move the broker's clock ahead: sessions, transactions, locks and retention that end by
        then end now. Returns when the timers that became due have run."""
        self.clock.advance(math.ceil(seconds * 1000))
        self.call(_turns)

    def expire_locks(self) -> None:
        """The clock moves to the end of every lock that a share group holds: the records are
        delivered again, or archived when that was often enough (KIP-932)."""
        while left_s := self.call(faults.next_lock_end_s):
            self.advance(left_s)

    def fence(self, transactional_id: str) -> None:
        """A newer producer takes this transactional id: the one that has it is fenced."""
        from headwater import Admin  # noqa: PLC0415 - loads the client

        with Admin(self.bootstrap) as admin:
            admin.fence_producers([transactional_id])

    def drop_next_ack(self, api: str = "Produce", count: int = 1) -> None:
        """Do what the next request of this API asks for, but close the connection instead of the
        reply: the client cannot know that it was done. `api`: Produce, OffsetCommit, EndTxn..."""
        if count < 1:
            raise UsageError(f"count is {count}: at least one reply is dropped")

        async def arm(server: BrokerServer) -> None:
            assert self._lost_replies is not None
            self._lost_replies.arm(self._lost_replies.key_of(api), count)

        self.call(arm)

    def pause(self) -> Undo:
        """The broker stands still, as a process under SIGSTOP: connections stay open, nothing is
        answered. Until `resume`, or the end of a `with` block over the result."""
        self.call(_turns)  # raises when it does not run
        assert self._standstill is not None
        self._standstill.begin()
        return Undo(self.resume)

    def resume(self) -> None:
        """End `pause`."""
        if self._standstill is not None:
            self._standstill.end()

    def lose_leader(self, topic: str, partition: int | None = None) -> Undo:
        """The topic's partitions (or one of them) have no leader, as after the failure of a disk.
        Until `restore_leader`, or the end of a `with` block over the result."""
        self.call(lambda server: faults.lose_leader(server, topic, partition))
        return Undo(lambda: self.restore_leader(topic, partition))

    def restore_leader(self, topic: str, partition: int | None = None) -> None:
        """End `lose_leader`: the partitions are led again, in a new leader epoch."""
        self.call(lambda server: faults.restore_leader(server, topic, partition))


async def _create_topic(
    server: BrokerServer, name: str, partitions: int, configs: dict[str, str]
) -> None:
    """Ask the controller, as a request of a client does. Raises KafkaError."""
    rows = tuple(CreatableTopicConfig(name=key, value=value) for key, value in configs.items())
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, configs=rows, assignments=()
    )
    version = CreateTopicsRequest.versions[1]
    body = encode(CreateTopicsRequest(topics=(topic,), timeout_ms=CREATE_TOPIC_MS), version)
    reply = await server.controller_channel.forward(CreateTopicsRequest.api_key, version, body)
    result = decode(CreateTopicsResponse, version, memoryview(reply)).topics[0]
    if result.error_code:
        raise KafkaError(ErrorCode(result.error_code), result.error_message or name)


async def _turns(_server: BrokerServer) -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


class _ErrorLog(logging.Handler):
    """Collects the errors that the threads of one broker log."""

    def __init__(self, name: str, errors: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._threads = name
        self._errors = errors

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record's text, with its exception."""
        thread = record.threadName or ""
        if thread == self._threads or thread.startswith(self._threads + "_"):
            text = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                text += f": {record.exc_info[1]!r}"
            self._errors.append(f"{record.name}: {text}")
