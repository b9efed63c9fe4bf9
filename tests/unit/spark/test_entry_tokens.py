"""Entry tokens: each admits one task of one broker."""

from __future__ import annotations

from headwater.system import SystemEntropy
from headwater_spark.cluster.entry_tokens import EntryTokens


def test_a_token_admits_once() -> None:
    tokens = EntryTokens(SystemEntropy())
    token = tokens.issue(3)
    assert tokens.admits(3, token)
    assert not tokens.admits(3, token)


def test_a_token_is_for_one_broker() -> None:
    tokens = EntryTokens(SystemEntropy())
    token, _other = tokens.issue(3), tokens.issue(4)
    assert not tokens.admits(4, token)
    assert tokens.admits(3, token)


def test_the_next_job_has_another_token() -> None:
    tokens = EntryTokens(SystemEntropy())
    former, token = tokens.issue(3), tokens.issue(3)
    assert not tokens.admits(3, former)
    assert tokens.admits(3, token)


def test_what_is_no_token_admits_nobody() -> None:
    tokens = EntryTokens(SystemEntropy())
    tokens.issue(3)
    for broker_id, token in ((3, None), (3, ""), (3, 7), (None, ""), ([], ""), (5, "")):
        assert not tokens.admits(broker_id, token)
