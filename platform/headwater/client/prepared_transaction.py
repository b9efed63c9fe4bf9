"""`PreparedTransaction`: a transaction that is flushed and open, to be ended by any process.

    handle = producer.prepare().to_json()
    PreparedTransaction.from_json(handle).commit("127.0.0.1:9092")

The handle is a transactional id with producer id and epoch: EndTxn needs no more (as with Flink).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Unpack

from headwater.client.addresses import parse_bootstrap
from headwater.client.cluster import Cluster, ClusterOptions
from headwater.client.coordinator_calls import CoordinatorCalls
from headwater.client.errors import (
    FatalTransactionError,
    KafkaTimeoutError,
    OptionError,
    RetriableTransactionError,
)
from headwater.client.loop_thread import LoopThread
from headwater.client.option_rules import unknown_option
from headwater.client.security_options import (
    SECURITY_OPTIONS,
    SecurityOptions,
    credentials_from,
)
from headwater.errors import ErrorCode, KafkaError, UsageError

CLIENT_ID = "headwater-prepared"
END_TIMEOUT_MS = 60_000
BOOTSTRAP_MARGIN_S = 1.0
STOP_TIMEOUT_S = 5.0
FORMAT = 1
"""Of the JSON of handles and checkpoint states; a newer one is refused."""
_FIELDS = {
    "transactional_id": str,
    "producer_id": int,
    "producer_epoch": int,
    "transaction_version": int,
    "is_empty": bool,
}


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """A prepared transaction. It can be pickled, and written as JSON."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction_version: int = 2
    is_empty: bool = False
    """True when nothing was sent: there is nothing to end."""

    def to_json(self) -> str:
        """The handle as a JSON object, for `from_json`."""
        return json.dumps(self.to_row())

    def to_row(self) -> dict[str, str | int]:
        """The handle as a dict, for `from_row`."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, text: str | bytes) -> PreparedTransaction:
        """The handle that `to_json` wrote. Raises UsageError for anything else."""
        try:
            row = json.loads(text)
        except (TypeError, ValueError) as e:
            raise UsageError(f"no prepared transaction: {text!r:.80}: {e}") from e
        return cls.from_row(row)

    @classmethod
    def from_row(cls, row: object) -> PreparedTransaction:
        """The handle of a JSON object that is decoded already. Raises UsageError."""
        is_handle = isinstance(row, dict) and all(
            type(row.get(name)) is kind for name, kind in _FIELDS.items()
        )
        if not is_handle:
            raise UsageError(
                f"no prepared transaction: {row!r:.80}: give what PreparedTransaction.to_json wrote"
            )
        assert isinstance(row, dict)
        check_format(row, "prepared transaction")
        return cls(**{name: row[name] for name in _FIELDS})

    def commit(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        timeout_ms: float = END_TIMEOUT_MS,
        **security: Unpack[SecurityOptions],
    ) -> None:
        """Commit the transaction; one that is committed already stays so. `security`: the security
        options of `Producer`.

        Raises RetriableTransactionError when the outcome is not known within `timeout_ms`: call
        again. Raises FatalTransactionError when the transaction is lost: it was aborted, by its
        timeout or by an operator, or a newer producer has used the transactional id since.
        """
        addresses, options = parse_bootstrap(bootstrap_servers), _cluster_options(security)
        end_prepared(addresses, [self], options, commit=True, timeout_ms=timeout_ms)

    def abort(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        timeout_ms: float = END_TIMEOUT_MS,
        **security: Unpack[SecurityOptions],
    ) -> None:
        """Abort the transaction; one that is aborted already stays so. Options and errors are as
        those of `commit`."""
        addresses, options = parse_bootstrap(bootstrap_servers), _cluster_options(security)
        end_prepared(addresses, [self], options, commit=False, timeout_ms=timeout_ms)


def check_format(row: Mapping[str, object], what: str) -> None:
    """Raises UsageError for what a newer Headwater has written."""
    written = row.get("format")
    if type(written) is not int or written > FORMAT:
        raise UsageError(
            f"no {what}: its format is {written!r}, this Headwater reads up to {FORMAT}: use the "
            "version that wrote it"
        )


def _cluster_options(security: Mapping[str, object]) -> ClusterOptions:
    for name in security:
        if name not in SECURITY_OPTIONS:
            raise OptionError(unknown_option("PreparedTransaction", name, SECURITY_OPTIONS))
    return ClusterOptions(client_id=CLIENT_ID, credentials=credentials_from(security))


def end_prepared(
    addresses: list[tuple[str, int]],
    handles: Sequence[PreparedTransaction],
    options: ClusterOptions,
    *,
    commit: bool,
    timeout_ms: float = END_TIMEOUT_MS,
) -> None:
    """Commit or abort several prepared transactions over the same connections, of these options.

    The first error ends it: RetriableTransactionError, FatalTransactionError,
    NoBrokersAvailableError.
    """
    wanted = [handle for handle in handles if not handle.is_empty]
    if not wanted:
        return
    thread = LoopThread(CLIENT_ID)
    cluster = Cluster(addresses, options)
    calls = CoordinatorCalls(cluster)
    done: list[PreparedTransaction] = []

    async def work() -> None:
        await cluster.bootstrap(timeout_ms)
        for handle in wanted:
            await _end(calls, handle, commit=commit)
            done.append(handle)

    try:
        thread.call(work(), timeout_ms / 1000 + BOOTSTRAP_MARGIN_S)
    except KafkaTimeoutError:
        verb = "commit" if commit else "abort"
        left = wanted[len(done)]
        raise RetriableTransactionError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"transactional id {left.transactional_id!r}: {verb}: not known to be done within "
            f"{timeout_ms:g} ms: {calls.cause or 'no answer'}; call it again",
        ) from None
    finally:
        thread.call(cluster.close(), STOP_TIMEOUT_S)
        thread.stop()


async def _end(calls: CoordinatorCalls, handle: PreparedTransaction, *, commit: bool) -> None:
    try:
        await calls.end(
            handle.transactional_id,
            (handle.producer_id, handle.producer_epoch),
            handle.transaction_version,
            commit=commit,
        )
    except KafkaError as e:
        raise FatalTransactionError(e.code, _lost_text(handle, e, commit=commit)) from e


def _lost_text(handle: PreparedTransaction, error: KafkaError, *, commit: bool) -> str:
    what = (
        f"transactional id {handle.transactional_id!r}, producer id {handle.producer_id}, epoch "
        f"{handle.producer_epoch}: {error}"
    )
    if error.code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return f"{what}; the principal has no WRITE right on the transactional id"
    if commit:
        return (
            f"{what}; the transaction is lost: it was aborted, by its timeout or an operator, or a "
            "newer producer has used the transactional id. Unless it was committed before, nothing "
            "of it is visible"
        )
    return (
        f"{what}; the transaction cannot be aborted: it was committed, or a newer producer has "
        "used the transactional id"
    )
