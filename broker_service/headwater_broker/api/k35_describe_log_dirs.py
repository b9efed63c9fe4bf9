"""DescribeLogDirs: this broker's data folders, and what each holds (KIP-113, KIP-827)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from headwater.errors import ErrorCode
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from headwater_broker.api.admin.forwarding import may_on_cluster
from headwater_broker.api.context import RequestContext, Services
from headwater_broker.api.registry import handles
from headwater_broker.log.unified_log import UnifiedLog

UNKNOWN_BYTES = -1

logger = logging.getLogger(__name__)


@handles(DescribeLogDirsRequest, DescribeLogDirsResponse)
def describe_log_dirs(
    ctx: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Null topics mean all. A folder without any of them is also listed."""
    if not may_on_cluster(ctx, Operation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    topics = request.topics
    wanted = None if topics is None else {(t.topic, p) for t in topics for p in t.partitions}
    rows = []
    for path, is_online, logs in ctx.broker.logs.by_folder():
        if not is_online:
            error = ErrorCode.KAFKA_STORAGE_ERROR
            rows.append(DescribeLogDirsResult(error_code=error, log_dir=path))
            continue
        shown = [log for log in logs if wanted is None or (log.topic, log.partition) in wanted]
        rows.append(_folder(ctx.broker, path, shown))
    return DescribeLogDirsResponse(error_code=ErrorCode.NONE, results=tuple(rows))


def _folder(services: Services, path: str, logs: Iterable[UnifiedLog]) -> DescribeLogDirsResult:
    try:
        total, usable = services.disk_space(path)
    except OSError as error:
        logger.warning("cannot read the disk space of data folder %s: %s", path, error)
        total = usable = UNKNOWN_BYTES
    by_topic: dict[str, list[DescribeLogDirsPartition]] = {}
    for log in logs:
        by_topic.setdefault(log.topic, []).append(_partition(services, log))
    return DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=path,
        topics=tuple(
            DescribeLogDirsTopic(name=name, partitions=tuple(found))
            for name, found in sorted(by_topic.items())
        ),
        total_bytes=total,
        usable_bytes=usable,
    )


def _partition(services: Services, log: UnifiedLog) -> DescribeLogDirsPartition:
    """A follower's lag is measured from the high watermark that it knows; that of a copy in
    progress to another folder, from the log end offset of its source."""
    current = services.logs.get(log.topic, log.partition)
    is_future = current is not None and current is not log
    if current is not None and is_future:
        end = current.log_end_offset
    else:
        end = services.replicas.high_watermark_of(log)
    return DescribeLogDirsPartition(
        partition_index=log.partition,
        partition_size=log.size_bytes,
        offset_lag=max(end - log.log_end_offset, 0),
        is_future_key=is_future,
    )
