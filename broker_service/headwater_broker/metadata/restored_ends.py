"""First offsets of restored topics' logs (`headwater restore`): offsets below are given already.

    /headwater/restored/<topic id>    {"version":1,"topic":"flights","ends":{"0":10000600}}

The nodes are written before any broker of a restored cluster starts, and stay. A replica that is
created on an empty disk starts there: clients may have seen offsets that the Delta table lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from headwater.ports.metadata_store import MetadataStore, NoNodeError
from headwater.wire.restore_names import RESTORED
from headwater_broker.metadata.znode_json import GARBLED
from headwater_broker.metadata.znodes import ZnodeError, load, uuid_from_text

RestoredEnds = Mapping[tuple[UUID, int], int]
"""(topic id, partition) -> the first offset that the restored cluster may assign."""


async def read_restored_ends(store: MetadataStore) -> RestoredEnds:
    """The ends of all restored topics; none in a cluster that was never restored.

    Raises ZnodeError: without its end a log would assign offsets a second time.
    """
    try:
        names = await store.children(RESTORED)
    except NoNodeError:
        return {}
    ends: dict[tuple[UUID, int], int] = {}
    nodes = await store.get_many([f"{RESTORED}/{name}" for name in names])
    for name, node in zip(names, nodes, strict=True):
        if node is not None:
            ends.update(_decoded(name, node.data))
    return ends


def _decoded(name: str, data: bytes) -> dict[tuple[UUID, int], int]:
    path = f"{RESTORED}/{name}"
    row = load(path, data)
    try:
        topic_id = uuid_from_text(name)
        return {(topic_id, int(p)): int(end) for p, end in row["ends"].items()}
    except GARBLED as error:
        raise ZnodeError(f"{path}: not the ends of a restored topic: {error!r}") from error
