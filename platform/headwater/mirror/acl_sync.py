"""Mirrors the ACLs of topics. What the mirror gave, and only that, it also takes away.

The owner of bucket 0 does it. What the target is to have is stored first, so that after a crash the
mirror still knows what is its own; and so does a promotion whose source is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from headwater.client.admin.acls import AclCalls
from headwater.client.cluster import Cluster
from headwater.errors import ErrorCode, KafkaError
from headwater.mirror.bucket import Bucket
from headwater.mirror.core.acls import mirrored_acls
from headwater.mirror.core.state import MirroredAcls, acls_record
from headwater.ports.authorizer import ResourceType
from headwater.security.acl import AclBinding, AclFilter

log = logging.getLogger(__name__)


class AclSync:
    """Reads the source's ACLs and writes the target's."""

    def __init__(self, source: Cluster, target: Cluster) -> None:
        self._source = AclCalls(source)
        self._target = AclCalls(target)
        self._is_refused = False

    async def sync(self, topics: Sequence[str], bucket: Bucket) -> None:
        """One round. Raises KafkaError when a cluster does not answer."""
        try:
            found = await self._source.describe(AclFilter(resource_type=ResourceType.TOPIC))
        except KafkaError as error:
            if error.code is not ErrorCode.SECURITY_DISABLED:
                raise
            return  # a source without an authorizer has no ACLs
        wanted = MirroredAcls(
            mirrored_acls(found, topics, is_promoted=False),
            mirrored_acls(found, topics, is_promoted=True),
        )
        before = bucket.state.acls
        if wanted == before:
            return
        both = MirroredAcls(wanted.given | before.given, wanted.promoted)
        if not await bucket.append([acls_record(both)]):
            return  # the next round tries again
        try:
            await replace_acls(self._target, before.given, wanted.given)
        except KafkaError as error:
            if not self._is_refused:
                log.warning("the topics' ACLs are not mirrored: %s", error)
            self._is_refused = True
            return
        if await bucket.append([acls_record(wanted)]):
            bucket.state.acls = wanted
        self._is_refused = False


async def replace_acls(
    target: AclCalls, before: set[AclBinding], wanted: set[AclBinding]
) -> tuple[int, int]:
    """Give what is new, take away what was the mirror's and is wanted no more; how many each."""
    new, old = wanted - before, before - wanted
    if new:
        await target.create(sorted(new))
    if old:
        await target.delete([AclFilter.exactly(acl) for acl in sorted(old)])
    if new or old:
        log.warning("ACLs in the target: %d given, %d taken away", len(new), len(old))
    return len(new), len(old)
