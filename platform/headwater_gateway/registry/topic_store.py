"""The registry's state, followed from the topic, and its only writer (`KafkaStore`).

A thread of its own reads the topic and publishes a state after each batch. A write request takes
the topic over if another instance has written since, reads to the end, decides, writes in one
transaction, and answers when its own records were read back.
"""

from __future__ import annotations

import logging
from collections import deque
from threading import Condition, Lock, Thread
from typing import Any

from headwater.client.errors import (
    ClosedError,
    KafkaTimeoutError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    RetriableTransactionError,
)
from headwater.client.values import ConsumerRecord
from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.errors import KafkaError
from headwater_gateway.registry.decision import Decision
from headwater_gateway.registry.errors import (
    OPERATION_TIMEOUT,
    SCHEMA_TOO_LARGE,
    STORE_ERROR,
    RegistryError,
    unprocessable,
)
from headwater_gateway.registry.records import decode_record, encode_record
from headwater_gateway.registry.schemas_topic import (
    WRITE_ID,
    SchemasTopic,
    TopicReader,
    TopicWriter,
)
from headwater_gateway.registry.state import RegistryState
from headwater_gateway.registry.store import Command

LOAD_TIMEOUT_S = 60.0
WRITE_TIMEOUT_S = 30.0
RETRY_S = 0.5
WRITES_KEPT = 1_000
MARKER = 1
"""A transaction's marker takes one offset after its records."""

log = logging.getLogger(__name__)


class TopicFollower:
    """Reads the topic on a thread of its own, and publishes the state after each batch."""

    def __init__(self, topic: SchemasTopic) -> None:
        self._topic = topic
        self._state = RegistryState()
        self._position = 0
        self._writes: deque[str] = deque(maxlen=WRITES_KEPT)
        self._changed = Condition()
        self._is_stopping = False
        self._thread = Thread(target=self._run, name="registry-follower", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None:  # it was started
            self._thread.join()

    def state(self) -> RegistryState:
        """The state by now."""
        return self._state

    def wait_until(self, offset: int, timeout_s: float) -> bool:
        """True once everything before the offset is in the state."""
        with self._changed:
            return self._changed.wait_for(lambda: self._position >= offset, timeout_s)

    def has_read(self, write_id: str) -> bool:
        """True if the records of this write are in the state, and it is one of the last."""
        with self._changed:
            return write_id in self._writes

    def _run(self) -> None:
        reader: TopicReader | None = None
        while not self._is_stopping:
            try:
                reader = reader or self._topic.reader()
                self._read(reader)
            except OffsetOutOfRangeError as error:
                log.warning("the topic of the registry was made anew: %s", error)
                self._start_anew(reader)
            except (KafkaError, ClosedError) as error:
                log.warning("the registry cannot read its topic: %s", error)
                with self._changed:
                    self._changed.wait_for(lambda: self._is_stopping, RETRY_S)
        if reader is not None:
            reader.close()

    def _start_anew(self, reader: TopicReader | None) -> None:
        with self._changed:
            self._state, self._position = RegistryState(), 0
        if reader is not None:
            reader.rewind()

    def _read(self, reader: TopicReader) -> None:
        records = reader.read()
        position = reader.position()
        if not records and position == self._position:
            return
        state = self._state.copy() if records else self._state
        for record in records:
            _replay(state, record)
        with self._changed:
            self._state = state
            self._position = max(position, self._position)
            self._writes.extend(dict.fromkeys(_write_id(r) for r in records))
            self._changed.notify_all()


def _replay(state: RegistryState, record: ConsumerRecord) -> None:
    try:
        known = decode_record(record.key, record.value)
    except ValueError as error:
        log.warning("the record at offset %d is not the registry's: %s", record.offset, error)
        return
    if known is not None:
        state.replay(known)


def _write_id(record: ConsumerRecord) -> str:
    return next((v.decode() for k, v in record.headers if k == WRITE_ID and v), "")


class TopicStore:
    """The store of one instance (`RegistryStore`)."""

    def __init__(self, topic: SchemasTopic, clock: Clock, entropy: Entropy) -> None:
        self._topic = topic
        self._clock = clock
        self._entropy = entropy
        self._follower = TopicFollower(topic)
        self._writer: TopicWriter | None = None
        self._lock = Lock()
        self._own_end = 0
        """The offset after the marker of the last own transaction."""

    def start(self) -> None:
        """Create the topic, read it to its end. Raises UsageError, KafkaError."""
        self._topic.create()
        self._follower.start()
        if not self._follower.wait_until(self._topic.end(), LOAD_TIMEOUT_S):
            raise KafkaTimeoutError(f"the topic is not read within {LOAD_TIMEOUT_S:.0f} s")

    def close(self) -> None:
        """Stop reading and writing."""
        self._follower.stop()
        with self._lock:
            self._drop_writer()
        self._topic.close()

    def state(self) -> RegistryState:
        """The state by now."""
        return self._follower.state()

    def cluster_id(self) -> str | None:
        """The cluster's id."""
        return self._topic.cluster_id()

    def execute(self, command: Command) -> Any:
        """Decide, write, read back; again where another instance has taken over meanwhile."""
        deadline = self._clock.monotonic() + WRITE_TIMEOUT_S
        with self._lock:
            while True:
                try:
                    return self._attempt(command, deadline)
                except _SupersededError:
                    self._drop_writer()
                except MessageTooLargeError as error:
                    raise unprocessable(
                        SCHEMA_TOO_LARGE,
                        f"Register operation failed because schema is too large: {error}",
                    ) from error
                except KafkaError as error:
                    self._drop_writer()
                    if not error.retriable or self._clock.monotonic() >= deadline:
                        raise RegistryError(
                            500, STORE_ERROR, f"the topic {self._topic.options.topic}: {error}"
                        ) from error
                if self._clock.monotonic() >= deadline:
                    raise RegistryError(
                        500, OPERATION_TIMEOUT, f"no write within {WRITE_TIMEOUT_S:.0f} s"
                    )

    def _attempt(self, command: Command, deadline: float) -> Any:
        self._catch_up(deadline)
        decision = command(self._follower.state())
        if not decision.records:
            return decision.reply  # as of a schema that is there already: no takeover
        if self._writer is None:
            self._writer = self._topic.writer()
            self._catch_up(deadline)
            decision = command(self._follower.state())
        self._write(self._writer, decision, deadline)
        return decision.reply

    def _catch_up(self, deadline: float) -> None:
        end = self._topic.end()
        if end != self._own_end:
            self._wait(end, deadline)

    def _wait(self, offset: int, deadline: float) -> None:
        left_s = max(deadline - self._clock.monotonic(), 0.0)
        if not self._follower.wait_until(offset, left_s):
            raise RegistryError(
                500, OPERATION_TIMEOUT, f"offset {offset} of the topic is not read in time"
            )

    def _write(self, writer: TopicWriter, decision: Decision, deadline: float) -> None:
        if not decision.records:
            return
        write_id = self._entropy.uuid().hex
        rows = [encode_record(r) for r in decision.records]
        try:
            last = writer.write(rows, write_id)
        except ProducerFencedError as error:
            raise _SupersededError from error
        except RetriableTransactionError as error:
            log.warning("the outcome of a write is not known: %s", error)
            if not self._was_written(write_id, deadline):
                raise _SupersededError from error
            return
        self._wait(last + 1, deadline)
        self._own_end = last + 1 + MARKER

    def _was_written(self, write_id: str, deadline: float) -> bool:
        """A new writer has the coordinator end the transaction, one way or the other."""
        self._drop_writer()
        self._writer = self._topic.writer()
        self._wait(self._topic.end(), deadline)
        return self._follower.has_read(write_id)

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class _SupersededError(Exception):
    """Another instance writes: what was decided is void."""
