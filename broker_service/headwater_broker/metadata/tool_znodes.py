"""Nodes that tools write: reassignments, elections, config change notifications.

The formats are those of Kafka's tools that used `--zookeeper`. The paths are in `znodes`.
"""

from __future__ import annotations

from headwater_broker.metadata.znode_json import GARBLED, parse
from headwater_broker.metadata.znodes import CONFIG_CHANGES, ZnodeError, load

CONFIG_CHANGE_VERSION = 2


def decode_config_change(data: bytes) -> str:
    """The entity whose config changed, such as `topics/T`. Raises ZnodeError.

    Version 2 holds an entity path; the oldest format is the topic's name as a JSON string.
    """
    try:
        row = parse(data)
        if isinstance(row, str):
            return f"topics/{row}"
        return str(load(CONFIG_CHANGES, data, CONFIG_CHANGE_VERSION)["entity_path"])
    except GARBLED as e:
        text = f"{CONFIG_CHANGES}: not a config change notification: {data[:80]!r}"
        raise ZnodeError(text) from e


def decode_partition_list(path: str, data: bytes) -> dict[tuple[str, int], tuple[int, ...]]:
    """A tool's request: (topic, partition) -> replicas (empty for elections).

    Partition numbers may be strings.
    """
    try:
        rows = load(path, data)["partitions"]
        return {
            (str(r["topic"]), int(r["partition"])): tuple(int(b) for b in r.get("replicas", ()))
            for r in rows
        }
    except GARBLED as e:
        raise ZnodeError(f"{path}: not a list of partitions: {e!r}") from e
