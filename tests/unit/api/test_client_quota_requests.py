"""DescribeClientQuotas and AlterClientQuotas (KIP-546): real handlers, controller and znodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headwater.errors import ErrorCode
from headwater.ports.metadata_store import Create, Delete, Set
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
from headwater_broker.api.k48_describe_client_quotas import describe_client_quotas
from headwater_broker.api.k49_alter_client_quotas import alter_client_quotas
from headwater_broker.metadata import znodes
from unit.api.test_moving import context, play, standby
from unit.controller.brokers_in_memory import Cluster, FakeBroker, until

USER, CLIENT, IP = "user", "client-id", "ip"
EXACT, DEFAULT, ANY = range(3)

Entity = dict[str, str | None]


def entry(entity: Entity, **values: float | None) -> AlterEntryData:
    return AlterEntryData(
        entity=tuple(EntityData(entity_type=t, entity_name=n) for t, n in entity.items()),
        ops=tuple(OpData(key=k, value=v or 0.0, remove=v is None) for k, v in values.items()),
    )


async def alter(
    broker: FakeBroker,
    *entries: AlterEntryData,
    validate_only: bool = False,
    audited: list[str] | None = None,
) -> list[tuple[ErrorCode, str]]:
    request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
    reply = await alter_client_quotas(  # type: ignore[misc]
        context(broker, 1, audited=audited), request
    )
    assert isinstance(reply, AlterClientQuotasResponse)
    assert [row.entity for row in reply.entries] == list(dict.fromkeys(e.entity for e in entries))
    return [(ErrorCode(row.error_code), row.error_message or "") for row in reply.entries]


def ask(broker: FakeBroker, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    rows = tuple(ComponentData(entity_type=t, match_type=m, match=n) for t, m, n in components)
    request = DescribeClientQuotasRequest(components=rows, strict=strict)
    reply = describe_client_quotas(context(broker, 1), request)
    assert isinstance(reply, DescribeClientQuotasResponse)
    if reply.error_code:
        assert reply.entries is None and reply.error_message
        return ErrorCode(reply.error_code)
    return [
        (
            {e.entity_type: e.entity_name for e in row.entity},
            {v.key: v.value for v in row.values},
        )
        for row in reply.entries or ()
    ]


DONE = (ErrorCode.NONE, "")


def test_quotas_reach_every_broker_and_outlive_the_controller() -> None:
    async def story(cluster: Cluster) -> None:
        asked = standby(cluster)
        pair: Entity = {USER: "al ice", CLIENT: None}
        done = await alter(
            asked,
            entry({CLIENT: "app"}, producer_byte_rate=1024.0, request_percentage=12.5),
            entry(pair, consumer_byte_rate=77.0),
            entry({IP: "10.0.0.1"}, connection_creation_rate=5.0),
        )
        assert done == [DONE] * 3
        told = {
            "clients/app": {"producer_byte_rate": "1024", "request_percentage": "12.5"},
            "ips/10.0.0.1": {"connection_creation_rate": "5"},
            "users/al%20ice/clients/<default>": {"consumer_byte_rate": "77"},
        }
        assert [b.view.client_quotas for b in cluster.all()] == [told] * 3
        node = await asked.store.get("/config/users/al%20ice/clients/<default>")
        assert znodes.decode_overrides("", node.data) == {"consumer_byte_rate": "77"}
        first = next(b.broker_id for b in cluster.all() if b.controller.is_active)
        await cluster.kill(first)
        await until(lambda: any(b.controller.is_active for b in cluster.all()))
        again = await cluster.add(first)
        await until(lambda: again.view.client_quotas == told)
        gone = entry(pair, consumer_byte_rate=None)
        user = entry({USER: "al ice"}, producer_byte_rate=9.0)
        assert await alter(again, gone, user) == [DONE, DONE]
        del told["users/al%20ice/clients/<default>"]
        told["users/al%20ice"] = {"producer_byte_rate": "9"}
        await until(lambda: all(b.view.client_quotas == told for b in cluster.all()))

    play(story)


def test_a_trial_changes_nothing_and_an_entity_asked_twice_is_refused() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        app = entry({CLIENT: "app"}, producer_byte_rate=1.0)
        assert await alter(one, app, validate_only=True) == [DONE]
        assert one.view.client_quotas == {}
        other = entry({CLIENT: "other"}, producer_byte_rate=1.0)
        codes = [code for code, _ in await alter(one, app, other, app)]
        assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE], "one row per entity"
        assert list(one.view.client_quotas) == ["clients/other"]

    play(story)


@pytest.mark.parametrize("second", [1.0, 2.0, None])
def test_a_key_that_stands_twice_for_an_entity_is_refused(second: float | None) -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        asked = entry({USER: "a"}, producer_byte_rate=1.0)
        again = entry({USER: "a"}, producer_byte_rate=second)
        both = replace(asked, ops=asked.ops + again.ops)
        other = entry({USER: "b"}, producer_byte_rate=1.0)
        [(code, text), done] = await alter(one, both, other)
        assert code is ErrorCode.INVALID_REQUEST and "more than once" in text
        assert done == DONE
        assert list(one.view.client_quotas) == ["users/b"]

    play(story)


@pytest.mark.parametrize(
    ("entity", "key", "value", "words"),
    [
        ({CLIENT: "a"}, "producer_byte_rate", 0.0, "greater than 0"),
        ({CLIENT: "a"}, "producer_byte_rate", 1.5, "whole number"),
        ({CLIENT: "a"}, "producer_byte_rate", float("nan"), "greater than 0"),
        ({CLIENT: "a"}, "no_such", 1.0, "request_percentage"),
        ({CLIENT: "a"}, "controller_mutation_rate", 0.0, "greater than 0"),
        ({IP: "::1"}, "controller_mutation_rate", 1.0, "an ip may have"),
        ({CLIENT: "a"}, "connection_creation_rate", 1.0, "a user or client-id may have"),
        ({IP: "::1"}, "producer_byte_rate", 1.0, "an ip may have"),
        ({IP: "::1", USER: "b"}, "connection_creation_rate", 1.0, "an ip stands alone"),
        ({IP: "::1"}, "connection_creation_rate", 2.0**40, "at most"),
        ({IP: "web"}, "connection_creation_rate", 1.0, "ip 'web' is no address"),
        ({"group": "a"}, "producer_byte_rate", 1.0, "not one of user, client-id, ip"),
        ({USER: ""}, "producer_byte_rate", 1.0, "the user is empty"),
        ({}, "producer_byte_rate", 1.0, "needs an entity"),
        ({USER: "b" * 2_000_000}, "producer_byte_rate", 1.0, "bytes in ZooKeeper"),
        ({USER: "b" * 300_000, CLIENT: "/" * 50_000}, "producer_byte_rate", 1.0, "in ZooKeeper"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    entity: Entity, key: str, value: float | None, words: str
) -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        ((code, text),) = await alter(one, entry(entity, **{key: value}))
        assert code is ErrorCode.INVALID_REQUEST and words in text
        assert one.view.client_quotas == {}

    play(story, 1)


def test_filters_name_entities_as_kafkas_do() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        entities: list[Entity] = [
            {CLIENT: "app"},
            {CLIENT: None},
            {USER: "u"},
            {USER: "u", CLIENT: "app"},
            {IP: None},
        ]
        for entity in entities:
            key = "connection_creation_rate" if IP in entity else "consumer_byte_rate"
            assert await alter(one, entry(entity, **{key: 3.0})) == [DONE]

        def found(*components: tuple[str, int, str | None], strict: bool = False) -> list[Entity]:
            return [entity for entity, _ in ask(one, *components, strict=strict)]

        every = found()
        assert len(every) == 5 and all(entity in every for entity in entities)
        assert found((CLIENT, ANY, None), strict=True) == [{CLIENT: None}, {CLIENT: "app"}]
        assert found((CLIENT, EXACT, "app")) == [{CLIENT: "app"}, {USER: "u", CLIENT: "app"}]
        assert found((CLIENT, DEFAULT, None)) == [{CLIENT: None}]
        assert found((USER, EXACT, "u"), (CLIENT, ANY, None)) == [{USER: "u", CLIENT: "app"}]
        assert ask(one, (IP, DEFAULT, None)) == [({IP: None}, {"connection_creation_rate": 3.0})]
        assert ask(one, ("group", ANY, None)) is ErrorCode.UNSUPPORTED_VERSION
        assert ask(one, (IP, ANY, None), (USER, ANY, None)) is ErrorCode.INVALID_REQUEST
        assert ask(one, (USER, ANY, None), (USER, ANY, None)) is ErrorCode.INVALID_REQUEST
        assert ask(one, (USER, EXACT, None)) is ErrorCode.INVALID_REQUEST

    play(story, 1)


def test_quotas_written_by_hand_are_taken_over() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        data = znodes.encode_overrides({"producer_byte_rate": "5", "odd": "x"})
        note = b'{"version":2,"entity_path":"clients/by-hand"}'
        await one.store.multi(
            [
                Create("/config/clients/by-hand", data),
                Create("/config/changes/config_change_0000000001", note),
            ]
        )
        await until(lambda: "clients/by-hand" in one.view.client_quotas)
        assert ask(one, (CLIENT, ANY, None)) == [({CLIENT: "by-hand"}, {"producer_byte_rate": 5.0})]
        await one.store.multi(
            [
                Set("/config/clients/by-hand", b"no JSON"),
                Create("/config/changes/config_change_0000000002", note),
            ]
        )
        await until(lambda: one.view.client_quotas == {})

    play(story, 1)


def test_quotas_whose_node_is_removed_by_hand_are_gone() -> None:
    """They counted until the next controller, and to set them again ended the term."""

    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        assert await alter(one, entry({CLIENT: "app"}, producer_byte_rate=5.0)) == [DONE]
        epoch = one.controller.controller_epoch
        note = b'{"version":2,"entity_path":"clients/app"}'
        await one.store.multi(
            [
                Delete("/config/clients/app"),
                Create("/config/changes/config_change_0000000001", note),
            ]
        )
        await until(lambda: one.view.client_quotas == {})
        assert await alter(one, entry({CLIENT: "app"}, producer_byte_rate=6.0)) == [DONE]
        assert ask(one, (CLIENT, ANY, None)) == [({CLIENT: "app"}, {"producer_byte_rate": 6.0})]
        assert one.controller.controller_epoch == epoch

    play(story, 1)


def test_an_address_is_one_entity_however_it_is_spelt() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        long, short = "2001:DB8:0:0:0:0:0:1", "2001:db8::1"
        assert await alter(one, entry({IP: long}, connection_creation_rate=5.0)) == [DONE]
        await until(lambda: bool(one.view.client_quotas))
        shown = [({IP: short}, {"connection_creation_rate": 5.0})]
        for spelt in (long, short):
            assert ask(one, (IP, EXACT, spelt)) == shown
        assert ask(one, (IP, EXACT, "none")) == []
        twice = await alter(
            one,
            entry({IP: long}, connection_creation_rate=6.0),
            entry({IP: short}, connection_creation_rate=7.0),
        )
        assert [code for code, _ in twice] == [ErrorCode.INVALID_REQUEST] * 2
        assert await alter(one, entry({IP: short}, connection_creation_rate=None)) == [DONE]
        await until(lambda: ask(one, (IP, EXACT, long)) == [])

    play(story)


def test_changes_are_audited_but_what_is_only_validated_is_not() -> None:
    async def story(cluster: Cluster) -> None:
        asked, audited = standby(cluster), list[str]()
        alice = entry({USER: "alice", CLIENT: None}, producer_byte_rate=1024.0)
        wrong = entry({USER: "bob"}, no_such_rate=1.0)
        await alter(asked, alice, validate_only=True, audited=audited)
        assert audited == []
        await alter(asked, alice, wrong, audited=audited)
        await alter(asked, entry({USER: "alice", CLIENT: None}, producer_byte_rate=None),
                    audited=audited)  # fmt: skip
        who = "quotas of user alice, client-id <default>"
        head = "User:test requested AlterClientQuotas from host = , result = "
        assert [line.removeprefix(head) for line in audited] == [
            f"NONE: {who}: producer_byte_rate=1024",
            "INVALID_REQUEST: quotas of user bob: no_such_rate=1",
            f"NONE: {who}: producer_byte_rate removed",
        ]

    play(story)
