"""Admin calls about client quotas (KIP-546): their requests, on the loop."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.client.cluster import Cluster
from headwater.client.errors import kafka_error
from headwater.client.values import ClientQuotas
from headwater.config.quota_precedence import entity_path
from headwater.wire.apis.k48_describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
)
from headwater.wire.apis.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterEntryData,
    OpData,
)

MATCH_EXACT = 0
MATCH_DEFAULT = 1


class QuotaCalls:
    """Each method is one admin call, with retries."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def describe(self, entity: Mapping[str, str | None] | None) -> list[ClientQuotas]:
        """DescribeClientQuotas for one entity, or for all."""
        request = DescribeClientQuotasRequest(
            components=tuple(
                ComponentData(
                    entity_type=kind,
                    match_type=MATCH_DEFAULT if name is None else MATCH_EXACT,
                    match=name,
                )
                for kind, name in (entity or {}).items()
            ),
            strict=entity is not None,
        )

        async def attempt() -> list[ClientQuotas]:
            node = await self._cluster.any_node()
            reply = await self._cluster.call(node, request, DescribeClientQuotasResponse)
            if reply.error_code:
                raise kafka_error(reply.error_code, reply.error_message or "client quotas")
            return [
                ClientQuotas(
                    {e.entity_type: e.entity_name for e in row.entity},
                    {v.key: v.value for v in row.values},
                )
                for row in reply.entries or ()
            ]

        return await self._cluster.retrying("describe client quotas", attempt)

    async def alter(
        self,
        entity: Mapping[str, str | None],
        quotas: Mapping[str, float | None],
        *,
        validate_only: bool,
    ) -> None:
        """AlterClientQuotas for one entity; None removes a quota."""
        path = entity_path(entity)
        row = AlterEntryData(
            entity=tuple(EntityData(entity_type=t, entity_name=n) for t, n in entity.items()),
            ops=tuple(
                OpData(key=key, value=value or 0.0, remove=value is None)
                for key, value in quotas.items()
            ),
        )
        request = AlterClientQuotasRequest(entries=(row,), validate_only=validate_only)

        async def attempt() -> None:
            node = await self._cluster.any_node()
            reply = await self._cluster.call(node, request, AlterClientQuotasResponse)
            (answer,) = reply.entries
            if answer.error_code:
                raise kafka_error(answer.error_code, f"{path}: {answer.error_message}")

        await self._cluster.retrying("alter client quotas", attempt)
