"""How large a write may be, and one topic's write cut where it is larger. Pure.

ZooKeeper drops the connection over a request beyond its limit (`jute.maxbuffer`, 1 MiB), as if it
had been lost: a controller that sends it again does so for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.metadata_store import Create, Operation, Set

MULTI_BYTES_MAX = 400_000
"""Well below ZooKeeper's limit."""
REQUEST_BYTES_MAX = 1_000_000
"""Nothing larger is ever sent."""
MOVING_BYTES_MAX = 800_000
"""Of a topic's node that tells of moves: it leaves room for the note of what they remove, which
goes along. 10,000 partitions of three replicas can move at once."""
OPERATION_BYTES = 40

Group = tuple[Operation, ...]


def size_of(group: Iterable[Operation]) -> int:
    """About what it takes on the wire, in bytes."""
    return sum(OPERATION_BYTES + len(op.path) + len(_data(op)) for op in group)


def check_size(group: Group, what: str, code: ErrorCode, *, allowed: int = MULTI_BYTES_MAX) -> None:
    """Whether what a client asks for can be stored. Raises KafkaError of this code."""
    size = size_of(group)
    if size > allowed:
        text = f"{what} would take {size} bytes in ZooKeeper, {allowed} are allowed"
        raise KafkaError(code, text)


def _data(operation: Operation) -> bytes:
    return operation.data if isinstance(operation, Create | Set) else b""


def topic_batches(changed: Sequence[Group], node: Group, made: Sequence[Group]) -> list[Group]:
    """A topic's node (with what goes along) and its partitions' records, those that `changed` and
    those that are `made`: one group, or several when that would be too large.

    Then the order counts. Changed records first: with the old replica list they are a move that is
    not done, which goes on; the new list with old records could lack who is in sync. Made ones
    last: without a record a partition of the list is a new one.
    """
    whole = (*(op for group in changed for op in group), *node, *(op for g in made for op in g))
    if size_of(whole) <= MULTI_BYTES_MAX:
        return [whole]
    return [*changed, node, *made]
