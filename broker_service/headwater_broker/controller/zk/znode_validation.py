"""What the store holds about topics, as far as it can be used: anybody may have written it. Pure.

One bad node costs what it says, never the cluster its controller: an override that cannot be used
is left out, a topic that cannot be used is left alone (its data too) until its node is mended. What
a newer version wrote is refused, so that another broker leads (docs/versions.md).
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
"""Takes one line for the log."""

PORT_MAX = 65_535
FAR_PRODUCER_ID = 2**48
FAR_STEP = 2**14
"""More than a block of producer ids."""
_BROKER_ID = re.compile("0|[1-9][0-9]{0,9}")


def read_assignment(topic: str, data: bytes) -> znodes.TopicAssignment:
    """A topic's node. Raises ZnodeError, which says what is wrong; NewerVersionError."""
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
        if max(replicas) > INT32_MAX:  # what brokers are told must fit on the wire
            return f"{listed} names what is no broker id"
        adding, removing = found.adding.get(index, ()), found.removing.get(index, ())
        if not {*adding, *removing} <= set(replicas):
            return f"{listed} lacks some of adding {list(adding)}, removing {list(removing)}"
        if set(replicas) <= set(removing) or set(replicas) <= set(adding):
            return f"{listed} would be all new or all gone"
    stray = (found.adding.keys() | found.removing.keys()) - found.partitions.keys()
    return f"replicas of unknown partitions move: {sorted(stray)}" if stray else ""


def read_record(topic: str, index: int, data: bytes) -> znodes.PartitionRecord:
    """A partition's state. Raises ZnodeError."""
    path = znodes.state_path(topic, index)
    found = znodes.PartitionRecord.decode(path, data)
    ids = (*found.isr, *found.elr, max(found.leader, 0))
    # What brokers are told must fit on the wire, also after the next election.
    if not (0 <= found.leader_epoch < INT32_MAX and all(0 <= b <= INT32_MAX for b in ids)):
        raise znodes.ZnodeError(f"{path}: not a partition state: numbers out of range")
    return found


def read_deletion(name: str, data: bytes) -> znodes.Deletion:
    """A node below `/headwater/deletions`. Raises ZnodeError."""
    path = f"{znodes.DELETIONS}/{name}"
    found = znodes.Deletion.decode(path, data)
    ids = [n for index, brokers in found.replicas.items() for n in (index, *brokers)]
    if znodes.deletion_path(found.topic_id) != path or not all(0 <= n <= INT32_MAX for n in ids):
        raise znodes.ZnodeError(f"{path}: not a note of the deletion of that topic id")
    return found


def read_producer_ids(node: Node, report: ReportFault) -> znodes.ProducerIdBlock:
    """The latest block; one that cannot be read is taken for one beyond all ids that were given
    out, and beyond those of another such node later (each block writes it once).

    Raises NewerVersionError.
    """
    try:
        return znodes.ProducerIdBlock.decode(node.data)
    except znodes.NewerVersionError:
        raise
    except znodes.ZnodeError as e:
        latest = FAR_PRODUCER_ID + node.version * FAR_STEP
        report(f"{e}: producer ids go on after {latest}")
        return znodes.ProducerIdBlock(-1, latest, latest)


def broker_id_of(name: str) -> int | None:
    """The broker whose node has this name; None: nobody's."""
    if not _BROKER_ID.fullmatch(name) or int(name) > INT32_MAX:
        return None
    return int(name)


def read_registration(name: str, data: bytes) -> tuple[int, znodes.BrokerRegistration]:
    """A node below `/brokers/ids`: whose it is, and what it says. Raises ZnodeError."""
    path = f"{znodes.BROKERS}/{name}"
    broker_id = broker_id_of(name)
    if broker_id is None:
        raise znodes.ZnodeError(f"{path}: {name!r} is not a broker id")
    registration = znodes.BrokerRegistration.decode(broker_id, data)
    # What brokers are told must fit on the wire.
    bad = [e.port for e in registration.endpoints if not 0 <= e.port <= PORT_MAX]
    if bad:
        raise znodes.ZnodeError(f"{path}: ports {bad} are not between 0 and {PORT_MAX}")
    return broker_id, registration


def copy_fault(topic: str, topic_id: UUID, owners: Mapping[UUID, str]) -> znodes.ZnodeError | None:
    """Why a topic may not have this id: another one has it, or its deletion goes on. Partitions go
    by topic id and number, so both would share leaders, records and data."""
    owner = owners.get(topic_id, topic)
    if owner == topic:
        return None
    text = f"its topic id {id_text(topic_id)} is that of topic {owner!r}"
    return znodes.ZnodeError(f"{znodes.topic_path(topic)}: {text}")


def without_copies(
    topics: Iterable[StoredTopic], notes: Iterable[znodes.Deletion]
) -> tuple[tuple[StoredTopic, ...], dict[str, znodes.ZnodeError]]:
    """The topics that may keep their ids, as they came, and what is wrong with the others.

    Of several with one id it is the one that partitions' records tell to be in use, then the oldest
    node's: so a controller decides as the last one did, which met the copy second.
    """
    rows = tuple(topics)
    owners = {note.topic_id: note.topic for note in notes if note.is_topic_deletion}
    for row in sorted(rows, key=lambda row: (not row.records, row.czxid)):
        if row.assignment.topic_id != znodes.NO_DIRECTORY:
            owners.setdefault(row.assignment.topic_id, row.name)
    faults = {row.name: copy_fault(row.name, row.assignment.topic_id, owners) for row in rows}
    kept = tuple(row for row in rows if faults[row.name] is None)
    return kept, {name: fault for name, fault in faults.items() if fault is not None}


def usable_overrides(
    topic: str, data: bytes | None, report: ReportFault, *, was_tiered: bool
) -> dict[str, str]:
    """A topic's overrides from its config node (None: there is none), without those that are not
    valid. `was_tiered`: tiering was on, and stays on. Raises NewerVersionError."""
    path = znodes.topic_config_path(topic)
    try:
        found = {} if data is None else znodes.decode_overrides(path, data)
    except znodes.NewerVersionError:
        raise
    except znodes.ZnodeError as e:
        report(f"{e}: the topic's overrides do not count until this is mended")
        found = {}
    usable = {}
    for name, text in found.items():
        try:
            check_configs({name: text})
        except KafkaError as e:
            report(f"{path}: left out: {e.detail}")
        else:
            usable[name] = text
    if was_tiered and not is_tiered(usable):
        report(f"{path}: {STAYS_TIERED}")
        usable[TIERING_KEY] = "true"
    return usable
