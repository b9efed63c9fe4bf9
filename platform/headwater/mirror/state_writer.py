"""Writes state for a mirror from outside of it: promotion, skipped gaps, topics begun anew.

Each write is a transaction with the bucket's own transactional id. Its `init` fences the mirror
that runs, which reads the new state when it begins again.
"""

from __future__ import annotations

from headwater.client.cluster import Cluster
from headwater.client.values import TopicPartition
from headwater.errors import KafkaError
from headwater.mirror.config import MirrorConfig
from headwater.mirror.core.batches import Piece
from headwater.mirror.core.state import StateRecord, positions_topic, transactional_id
from headwater.mirror.target_producer import FENCED, ProduceError, TargetProducer
from headwater.records.builder import BatchBuilder
from headwater.records.compression import Compression

TRIES = 5


def state_piece(rows: list[StateRecord], now_ms: int) -> Piece:
    """One batch of state records."""
    builder = BatchBuilder()
    for key, value in rows:
        builder.append(now_ms, key, value)
    return Piece(0, -1, builder.count, rebuilt=builder, codec=Compression.ZSTD)


async def write_state(
    target: Cluster, config: MirrorConfig, bucket: int, rows: list[StateRecord]
) -> None:
    """Fence the bucket's owner and store these records. Raises KafkaError, OSError."""
    tp = TopicPartition(positions_topic(config.mirror_id), bucket)
    producer = TargetProducer(
        target,
        transactional_id(config.mirror_id, bucket),
        config.transaction_timeout_ms,
        f"mirror-state-{bucket}",
    )
    for attempt in range(TRIES):
        try:
            await producer.init()
            await producer.add_partitions({tp})
            leader = await target.leader(*tp)
            await producer.send(leader, {tp: state_piece(rows, target.clock.now_ms())})
            await producer.wait_for_room(0)
            await producer.commit()
            return
        except (KafkaError, ProduceError) as error:
            # The mirror that runs may begin again in between, and fence this one.
            if error.code not in FENCED or attempt == TRIES - 1:
                raise
        finally:
            producer.drop()
