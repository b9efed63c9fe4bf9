"""`headwater tier typed`, of a topic without such a table."""

from __future__ import annotations

from headwater_tier.cli.typed import absence


def test_what_is_missing_for_a_typed_table_is_told() -> None:
    tiered = {"remote.storage.enable": "true"}
    for configs in ({}, tiered, {"headwater.value.format": "json"}):
        assert "set its configs remote.storage.enable=true and" in absence("orders", configs)
    told = absence("orders", {**tiered, "headwater.value.format": "json"})
    assert "set its configs" not in told and "`headwater tier status orders`" in told
