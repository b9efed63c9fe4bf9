"""Who may say where a topic's Delta table is (`headwater.table.uri`).

Tiering, brokers and the console reach that place with their own rights to files and stores, so the
owner of a topic may name only places that the brokers' operator allows.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.config.table_places import is_within
from headwater.errors import ErrorCode
from headwater.ports.authorizer import Operation
from headwater_broker.api.admin.config_authorization import Refusal
from headwater_broker.api.admin.forwarding import may_on_cluster
from headwater_broker.api.context import RequestContext

TABLE_URI = "headwater.table.uri"
ALLOWED_URIS = "headwater.tables.allowed.uris"


def refused_place(
    ctx: RequestContext, topic: str, configs: Iterable[tuple[str, str | None]]
) -> Refusal | None:
    """The refusal of configs that put the table elsewhere; None for allowed places, for the place
    that it has, and for who may alter the cluster's configs."""
    known = ctx.broker.view.topics.get(topic)
    present = known.configs.get(TABLE_URI) if known is not None else None
    bases = ctx.broker.config.table_bases
    for name, uri in configs:
        is_new = name == TABLE_URI and uri and uri.strip() and uri != present
        if is_new and not is_within(uri or "", bases):
            if may_on_cluster(ctx, Operation.ALTER_CONFIGS):
                return None
            text = (
                f"{TABLE_URI} is outside {', '.join(bases) or 'every allowed place'}: services "
                "read and write there with their own rights; name a folder below, have the "
                f"operator add it to the brokers' {ALLOWED_URIS}, or get ALTER_CONFIGS on the "
                "cluster"
            )
            return ErrorCode.POLICY_VIOLATION, text
    return None
