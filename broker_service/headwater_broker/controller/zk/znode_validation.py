"""Validation of nodes in ZooKeeper, which any tool may have written. Pure.

A bad node affects only what it describes, never the whole controller. An invalid override is left
out. A topic with an invalid node is ignored, and its data kept, until the node is mended. A node of
a newer version raises NewerVersionError, so that another broker becomes the controller
(docs/versions.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from headwater.errors import KafkaError
from headwater.ids import id_text
from headwater.ports.metadata_store import Node
from headwater.wire.primitives import INT32_MAX
from headwater_broker.controller.decisions.config_changes import STAYS_TIERED, check_configs
from headwater_broker.controller.decisions.topic_changes import check_name
from headwater_broker.controller.state import TIERING_KEY, is_tiered
from headwater_broker.controller.zk.state_loader import StoredTopic
from headwater_broker.metadata import znodes

ReportFault = Callable[[str], None]
"""Logs one line about a bad node."""

PORT_MAX = 65_535
FAR_PRODUCER_ID = 2**48
FAR_STEP = 2**14
"""Larger than a block of producer ids."""
_BROKER_ID = re.compile("0|[1-9][0-9]{0,9}")


def read_assignment(topic: str, data: bytes) -> znodes.TopicAssignment:
    """The assignment in a topic's node. Raises ZnodeError, NewerVersionError."""
    try:
        check_name(topic)
    except KafkaError as e:
        raise znodes.ZnodeError(f"{znodes.topic_path(topic)}: {e.detail}") from e
    found = znodes.TopicAssignment.decode(topic, data)
    fault = _fault(found)
    if fault:
        raise znodes.ZnodeError(f"{znodes.topic_path(topic)}: {fault}")
    return found


def _fault(found: znodes.TopicAssignment) -> str:
    if sorted(found.partitions) != list(range(len(found.partitions))) or not found.partitions:
        numbers = sorted(found.partitions)
        return f"partitions are not numbered from 0 on without gaps: {numbers}"
    for index, replicas in found.partitions.items():
        listed = f"partition {index}: the replica list {list(replicas)}"
        if not replicas or len(set(replicas)) != len(replicas) or min(replicas) < 0:
            return f"{listed} is empty, has duplicates or negative ids"
        if max(replicas) > INT32_MAX:  # broker ids are int32 on the wire
            return f"{listed} has a number that is no broker id"
        adding, removing = found.adding.get(index, ()), found.removing.get(index, ())
        if not {*adding, *removing} <= set(replicas):
            return f"{listed} lacks some of adding {list(adding)}, removing {list(removing)}"
        if set(replicas) <= set(removing) or set(replicas) <= set(adding):
            return f"{listed} would be all added or all removed"
    stray = (found.adding.keys() | found.removing.keys()) - found.partitions.keys()
    return f"reassignments of unknown partitions: {sorted(stray)}" if stray else ""


def read_record(topic: str, index: int, data: bytes) -> znodes.PartitionRecord:
    """A partition's state. Raises ZnodeError."""
    path = znodes.state_path(topic, index)
    found = znodes.PartitionRecord.decode(path, data)
    ids = (*found.isr, *found.elr, max(found.leader, 0))
    # The numbers must fit on the wire (int32), also after the next election.
    if not (0 <= found.leader_epoch < INT32_MAX and all(0 <= b <= INT32_MAX for b in ids)):
        raise znodes.ZnodeError(f"{path}: not a partition state: numbers out of range")
    return found


def read_deletion(name: str, data: bytes) -> znodes.Deletion:
    """The pending deletion in a node below `/headwater/deletions`. Raises ZnodeError."""
    path = f"{znodes.DELETIONS}/{name}"
    found = znodes.Deletion.decode(path, data)
    ids = [n for index, brokers in found.replicas.items() for n in (index, *brokers)]
    if znodes.deletion_path(found.topic_id) != path or not all(0 <= n <= INT32_MAX for n in ids):
        raise znodes.ZnodeError(f"{path}: not a deletion of that topic id")
    return found


def read_producer_ids(node: Node, report: ReportFault) -> znodes.ProducerIdBlock:
    """The latest block of producer ids. Raises NewerVersionError.

    An invalid node counts as a block beyond all ids ever given out. The node's version makes it
    rise, as each block writes the node once: should the node become invalid again, later ids are
    new, too.
    """
    try:
        return znodes.ProducerIdBlock.decode(node.data)
    except znodes.NewerVersionError:
        raise
    except znodes.ZnodeError as e:
        latest = FAR_PRODUCER_ID + node.version * FAR_STEP
        report(f"{e}: producer ids continue after {latest}")
        return znodes.ProducerIdBlock(-1, latest, latest)


def broker_id_of(name: str) -> int | None:
    """The broker id in a node's name; None if it is none."""
    if not _BROKER_ID.fullmatch(name) or int(name) > INT32_MAX:
        return None
    return int(name)


def read_registration(name: str, data: bytes) -> tuple[int, znodes.BrokerRegistration]:
    """The broker id and registration in a node below `/brokers/ids`. Raises ZnodeError."""
    path = f"{znodes.BROKERS}/{name}"
    broker_id = broker_id_of(name)
    if broker_id is None:
        raise znodes.ZnodeError(f"{path}: {name!r} is not a broker id")
    registration = znodes.BrokerRegistration.decode(broker_id, data)
    # The numbers must fit on the wire.
    bad = [e.port for e in registration.endpoints if not 0 <= e.port <= PORT_MAX]
    if bad:
        raise znodes.ZnodeError(f"{path}: ports {bad} are not between 0 and {PORT_MAX}")
    return broker_id, registration


def copy_fault(topic: str, topic_id: UUID, owners: Mapping[UUID, str]) -> znodes.ZnodeError | None:
    """Why a topic cannot have this id: another topic has it, or the topic with this id is still
    being deleted. Partitions are known by topic id and index, so both would share leaders and data.
    """
    owner = owners.get(topic_id, topic)
    if owner == topic:
        return None
    text = f"its topic id {id_text(topic_id)} belongs to topic {owner!r}"
    return znodes.ZnodeError(f"{znodes.topic_path(topic)}: {text}")


def without_copies(
    topics: Iterable[StoredTopic], deletions: Iterable[znodes.Deletion]
) -> tuple[tuple[StoredTopic, ...], dict[str, znodes.ZnodeError]]:
    """The topics that keep their ids, in order, and the faults of the others.

    Of several topics with one id, the one with partition states keeps it, else the oldest node's.
    So a new controller decides as the last one did, which read the copy later.
    """
    rows = tuple(topics)
    owners = {
        deletion.topic_id: deletion.topic for deletion in deletions if deletion.is_topic_deletion
    }
    for row in sorted(rows, key=lambda row: (not row.records, row.czxid)):
        if row.assignment.topic_id != znodes.NO_DIRECTORY:
            owners.setdefault(row.assignment.topic_id, row.name)
    faults = {row.name: copy_fault(row.name, row.assignment.topic_id, owners) for row in rows}
    kept = tuple(row for row in rows if faults[row.name] is None)
    return kept, {name: fault for name, fault in faults.items() if fault is not None}


def usable_overrides(
    topic: str, data: bytes | None, report: ReportFault, *, was_tiered: bool
) -> dict[str, str]:
    """The valid overrides in a topic's config node; `data` None: there is no node.

    `was_tiered`: tiering was on, and stays on. Raises NewerVersionError.
    """
    path = znodes.topic_config_path(topic)
    try:
        found = {} if data is None else znodes.decode_overrides(path, data)
    except znodes.NewerVersionError:
        raise
    except znodes.ZnodeError as e:
        report(f"{e}: the topic's overrides are ignored until the node is mended")
        found = {}
    usable = {}
    for name, text in found.items():
        try:
            check_configs({name: text})
        except KafkaError as e:
            report(f"{path}: ignored: {e.detail}")
        else:
            usable[name] = text
    if was_tiered and not is_tiered(usable):
        report(f"{path}: {STAYS_TIERED}")
        usable[TIERING_KEY] = "true"
    return usable
