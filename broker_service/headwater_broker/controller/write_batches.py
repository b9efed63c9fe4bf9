"""Limits on the size of ZooKeeper writes, and one topic's write split where it exceeds them. Pure.

ZooKeeper closes the connection on a request above its limit (`jute.maxbuffer`, 1 MiB). To the
controller that looks like a lost connection: it would send the request again for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.metadata_store import Create, Operation, Set

MULTI_BYTES_MAX = 400_000
"""Well below ZooKeeper's limit."""
REQUEST_BYTES_MAX = 1_000_000
"""No larger request is ever sent."""
MOVING_BYTES_MAX = 800_000
"""Limit of a topic's node during reassignments. It leaves room for the deletion node that is
written with it. 10,000 partitions of three replicas can move at once."""
OPERATION_BYTES = 40

Group = tuple[Operation, ...]


def size_of(group: Iterable[Operation]) -> int:
    """Approximate size on the wire, in bytes."""
    return sum(OPERATION_BYTES + len(op.path) + len(_data(op)) for op in group)


def check_size(group: Group, what: str, code: ErrorCode, *, allowed: int = MULTI_BYTES_MAX) -> None:
    """Check that a client's request can be stored. Raises KafkaError with this code."""
    size = size_of(group)
    if size > allowed:
        text = f"{what} would take {size} bytes in ZooKeeper; the limit is {allowed}"
        raise KafkaError(code, text)


def _data(operation: Operation) -> bytes:
    return operation.data if isinstance(operation, Create | Set) else b""


def topic_batches(changed: Sequence[Group], node: Group, made: Sequence[Group]) -> list[Group]:
    """The writes of a topic's node, its `changed` partition states and its new ones (`made`): one
    atomic batch, or several when one would be too large.

    Then the order matters. Changed states come first: with the old replica list they stand for a
    reassignment that is not done, and it goes on. A new replica list with old states could lack
    replicas that are in sync. New states come last: a partition without a state is a new one.
    """
    whole = (*(op for group in changed for op in group), *node, *(op for g in made for op in g))
    if size_of(whole) <= MULTI_BYTES_MAX:
        return [whole]
    return [*changed, node, *made]
