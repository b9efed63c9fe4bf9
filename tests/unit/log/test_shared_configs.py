"""Topics without overrides share one config of the broker's defaults."""

from __future__ import annotations

from headwater_broker.log.log_config import LogConfig, LogConfigs


def test_topics_without_overrides_share_one_value_and_the_others_have_their_own() -> None:
    properties = {"log.retention.ms": "5000"}
    configs = LogConfigs(properties)
    plain = configs.of({})
    assert plain == LogConfig.from_overrides({}, properties)
    assert plain.retention_ms == 5000
    assert configs.of({}) is plain
    assert configs.of({"retention.ms": "7000"}).retention_ms == 7000
    assert configs.of({}) is plain
