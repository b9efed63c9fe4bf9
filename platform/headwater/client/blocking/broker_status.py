"""A broker's status, blocking: for the command line and tests. One connection to one broker."""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

from headwater.client.addresses import parse_bootstrap
from headwater.client.blocking.connection import BlockingConnection
from headwater.client.errors import kafka_error
from headwater.ports.credentials import NO_CREDENTIALS, Credentials
from headwater.wire.apis.k10009_broker_status import BrokerStatusRequest, BrokerStatusResponse
from headwater.wire.apis.k10012_drain_broker import DrainBrokerRequest, DrainBrokerResponse
from headwater.wire.schema import Message

R = TypeVar("R", bound=Message)
TIMEOUT_S = 2.0
CLIENT_ID = "headwater-status"


class BrokerStatusClient:
    """Asks one broker (`host:port` of its data plane). It connects at the first call, and again
    after an error."""

    def __init__(
        self, address: str, credentials: Credentials = NO_CREDENTIALS, timeout_s: float = TIMEOUT_S
    ) -> None:
        self.address = address
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._connection: BlockingConnection | None = None

    def status(self) -> BrokerStatusResponse:
        """The broker's readiness and its view of the cluster. Raises OSError, KafkaError."""
        reply = self._call(BrokerStatusRequest(), BrokerStatusResponse)
        if reply.error_code:
            raise kafka_error(reply.error_code, reply.error_message or self.address)
        return reply

    def drain(self) -> None:
        """Begin a controlled shutdown. Raises OSError, KafkaError."""
        reply = self._call(DrainBrokerRequest(), DrainBrokerResponse)
        if reply.error_code:
            raise kafka_error(reply.error_code, reply.error_message or self.address)

    def _call(self, request: Message, reply: type[R]) -> R:
        try:
            return self._connected().call(request, reply)
        except OSError:
            self.close()
            raise

    def _connected(self) -> BlockingConnection:
        if self._connection is None:
            [(host, port)] = parse_bootstrap(self.address)
            self._connection = BlockingConnection(
                host,
                port,
                client_id=CLIENT_ID,
                timeout_s=self._timeout_s,
                credentials=self._credentials,
            )
        return self._connection

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> BrokerStatusClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
