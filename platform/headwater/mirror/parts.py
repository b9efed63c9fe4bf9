"""Shared by the buckets of one process of a mirror."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.client.cluster import Cluster
from headwater.client.values import TopicPartition
from headwater.errors import HeadwaterError
from headwater.mirror.config import MirrorConfig
from headwater.mirror.core.state import MirrorState
from headwater.mirror.topic_sync import MirroredTopic


class PromotedError(HeadwaterError):
    """The target was promoted: the mirror writes no more."""


@dataclass(slots=True)
class MirrorParts:
    """The two clusters, and what is mirrored."""

    config: MirrorConfig
    source: Cluster
    target: Cluster
    owner: str
    """Names this process in heartbeats."""
    buckets: int
    partitions: Mapping[TopicPartition, MirroredTopic] = field(default_factory=dict)
    """What is mirrored, by the last look at both clusters."""
    first_counts: Mapping[str, int] | None = None
    """The partitions of the source's topics at this process's first look; None before it."""
    mirrored_before: frozenset[tuple[str, str]] = frozenset()
    """Name and source id of the topics that had a position when this process began, if
    `source.auto.offset.reset` is latest."""
    troubles: list[str] = field(default_factory=list)
    """Why topics could not be created or changed in the target."""
    reverse: MirrorState = field(default_factory=MirrorState)
    """What the mirror in the other direction stored in the source."""


def promoted_text(mirror_id: str) -> str:
    """What a mirror says that was promoted."""
    return (
        f"mirror {mirror_id} was promoted: its target is written by applications now. To mirror "
        "into it again, `headwater mirror resume`: see docs/mirror.md, Failback"
    )
