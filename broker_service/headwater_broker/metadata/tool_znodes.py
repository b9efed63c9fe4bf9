"""What tools write into the store by hand: plans, elections, notes of configs that they changed.

Their forms are those of Kafka's tools that used `--zookeeper`; the paths are in `znodes`.
"""

from __future__ import annotations

from headwater_broker.metadata.znode_json import GARBLED, parse
from headwater_broker.metadata.znodes import CONFIG_CHANGES, ZnodeError, load

CONFIG_CHANGE_VERSION = 2


def decode_config_change(data: bytes) -> str:
    """Whose config changed: `topics/T`. Raises ZnodeError.

    Version 2 names an entity path; the oldest form is the topic's name as a JSON string.
    """
    try:
        row = parse(data)
        if isinstance(row, str):
            return f"topics/{row}"
        return str(load(CONFIG_CHANGES, data, CONFIG_CHANGE_VERSION)["entity_path"])
    except GARBLED as e:
        raise ZnodeError(f"{CONFIG_CHANGES}: not a note of a changed config: {data[:80]!r}") from e


def decode_partition_list(path: str, data: bytes) -> dict[tuple[str, int], tuple[int, ...]]:
    """The requests of old tools: (topic, partition) -> replicas (empty for elections).

    Partition numbers may be strings there.
    """
    try:
        rows = load(path, data)["partitions"]
        return {
            (str(r["topic"]), int(r["partition"])): tuple(int(b) for b in r.get("replicas", ()))
            for r in rows
        }
    except GARBLED as e:
        raise ZnodeError(f"{path}: not a list of partitions: {e!r}") from e
