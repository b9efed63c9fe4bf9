"""DescribeClientQuotas: the quotas of the entities that match a filter (KIP-546)."""

from __future__ import annotations

from headwater.config.quota_precedence import (
    CLIENT_ID,
    IP,
    USER,
    Entity,
    entity_of,
    plain_name,
    quota_value,
)
from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k48_describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from headwater_broker.api.admin.forwarding import require_on_cluster
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles
from headwater_broker.security.scram_credentials import MECHANISM_NAMES

EXACT, IS_DEFAULT, ANY = range(3)
"""How a component of the filter matches an entity's name."""


@handles(DescribeClientQuotasRequest, DescribeClientQuotasResponse)
def describe_client_quotas(
    ctx: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Entities with every type of the filter; with `strict`, and no other type."""
    try:
        require_on_cluster(ctx, Operation.DESCRIBE_CONFIGS)
        _check(request.components)
    except KafkaError as e:
        return DescribeClientQuotasResponse(error_code=e.code, error_message=e.detail, entries=None)
    rows = []
    for path, stored in sorted(ctx.broker.view.client_quotas.items()):
        entity = entity_of(path)
        configs = {key: value for key, value in stored.items() if key not in MECHANISM_NAMES}
        if entity is not None and (configs or not stored) and _matches(entity, request):
            found = {key: quota_value(configs, key) for key in sorted(configs)}
            values = tuple(ValueData(key=k, value=v) for k, v in found.items() if v is not None)
            names = tuple(EntityData(entity_type=t, entity_name=n) for t, n in entity.items())
            rows.append(EntryData(entity=names, values=values))
    return DescribeClientQuotasResponse(
        error_code=ErrorCode.NONE, error_message=None, entries=tuple(rows)
    )


def _check(components: tuple[ComponentData, ...]) -> None:
    """Raises KafkaError for a filter that no entity can match."""
    types = [c.entity_type for c in components]
    for kind in types:
        if kind not in (USER, CLIENT_ID, IP):
            text = f"quota entity type {kind!r} is not one of {USER}, {CLIENT_ID}, {IP}"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
    if len(set(types)) != len(types):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an entity type occurs more than once")
    if IP in types and len(types) > 1:
        text = "ip quotas do not combine with users and client-ids: leave those out"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    for c in components:
        if c.match_type not in (EXACT, IS_DEFAULT, ANY) or (c.match_type == EXACT) == (
            c.match is None
        ):
            text = f"{c.entity_type}: match type {c.match_type} with name {c.match!r}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)


def _matches(entity: Entity, request: DescribeClientQuotasRequest) -> bool:
    if request.strict and len(entity) != len(request.components):
        return False
    return all(_component_matches(entity, component) for component in request.components)


def _component_matches(entity: Entity, component: ComponentData) -> bool:
    if component.entity_type not in entity:
        return False
    name = entity[component.entity_type]
    if component.match_type == ANY:
        return True
    if component.match_type == IS_DEFAULT:
        return name is None
    return name == plain_name(component.entity_type, component.match)
