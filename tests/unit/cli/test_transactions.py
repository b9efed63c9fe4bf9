"""`headwater transactions` against one broker of ours."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from headwater import Admin
from headwater.cli.main import run_command
from headwater.cli.transactions import transactions
from unit.client.served_broker import ServedBroker, wait_until
from unit.client.test_admin_transactions import LOST, append, opened, served

__all__ = ["served"]


def run(servers: str, *arguments: str, code: int = 0) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        given = [*arguments, "--bootstrap-server", servers]
        found = run_command(transactions, given, "headwater transactions")
    assert found == code, f"{arguments}: {found}\n{out.getvalue()}\n{err.getvalue()}"
    return out.getvalue(), err.getvalue()


def answer(served: ServedBroker, *arguments: str, code: int = 0) -> Any:
    return json.loads(run(served.bootstrap, *arguments, "--json", code=code)[0])


def shown(served: ServedBroker, *arguments: str) -> str:
    return run(served.bootstrap, *arguments)[0]


def refused(served: ServedBroker, *arguments: str, code: int = 1) -> str:
    return run(served.bootstrap, *arguments, code=code)[1]


def test_transactions_are_listed_and_shown(served: ServedBroker) -> None:
    producer = opened(served, "pay-1", 0)
    opened(served, "bill-1", 1)
    assert [row["transactional_id"] for row in answer(served, "list")] == ["bill-1", "pay-1"]
    (row,) = answer(served, "list", "--pattern", "pay.*", "--state", "ONGOING")
    assert (row["transactional_id"], row["producer_id"]) == ("pay-1", producer.producer_id)
    text = shown(served, "list", "--producer-id", str(producer.producer_id))
    assert "pay-1" in text and "bill-1" not in text
    (described,) = answer(served, "show", "pay-1")
    assert described["partitions"] == [{"topic": "flights", "partition": 0}]
    assert (described["client_host"], described["state"]) == ("127.0.0.1", "Ongoing")
    assert described["marker_failures"] == []
    assert "times out in" in shown(served, "show", "pay-1")
    out, err = run(served.bootstrap, "show", "never", "pay-1", code=1)
    assert "pay-1" in out and "never does not exist" in err


def test_blockers_name_transaction_and_client(served: ServedBroker) -> None:
    assert "no open transaction blocks" in shown(served, "blockers")
    assert "'[' is no regular expression" in refused(served, "list", "--pattern", "[")
    producer = opened(served, "pay-1", 0)
    append(served, LOST, 1)
    first, second = answer(served, "blockers")
    assert (first["transactional_id"], first["producer_id"]) == ("pay-1", producer.producer_id)
    assert (first["principal"], first["client_host"]) == ("User:ANONYMOUS", "127.0.0.1")
    assert (second["is_hanging"], second["producer_id"]) == (True, LOST.producer_id)
    text = shown(served, "blockers", "flights")
    assert "flights-0" in text and "pay-1" in text and "hanging" in text
    assert "no open" in shown(served, "blockers", "--older-than", str(10**15))
    assert "did you mean flights?" in refused(served, "blockers", "flight")


def test_a_transaction_is_aborted_only_when_it_is_meant(served: ServedBroker) -> None:
    opened(served, "pay-1", 0, 1)
    assert answer(served, "abort", "pay-1")["executed"] is False
    assert "a dry run" in shown(served, "abort", "pay-1")
    where = ("--partition", "flights:0", "--start-offset", "0", "--execute")
    assert "headwater transactions abort pay-1" in refused(served, "abort", *where)
    forced = refused(served, "abort", *where, "--force")
    assert "FENCED" in forced and "transactions abort TRANSACTIONAL-ID" in forced
    assert "not both" in refused(served, "abort", "pay-1", *where, code=2)
    assert answer(served, "show", "pay-1")[0]["state"] == "Ongoing"
    assert "aborted the transaction of pay-1" in shown(served, "abort", "pay-1", "--execute")
    assert "no open transaction" in shown(served, "blockers")
    assert "has no open transaction" in refused(served, "abort", "pay-1", "--execute")
    assert "TRANSACTIONAL_ID_NOT_FOUND" in refused(served, "abort", "never", "--execute")


def test_a_prepared_transaction_is_committed_by_its_handle(served: ServedBroker) -> None:
    producer = opened(served, "pay-1", 0)
    other = ("--producer-id", str(producer.producer_id), "--producer-epoch", "9")
    fenced = refused(served, "commit", "pay-1", *other, "--execute")
    assert "PRODUCER_FENCED" in fenced
    assert f"pay-1 is Ongoing, of producer {producer.producer_id}, epoch 0" in fenced
    handle = (
        *("--producer-id", str(producer.producer_id)),
        *("--producer-epoch", str(producer.producer_epoch)),
    )
    assert "a dry run" in shown(served, "commit", "pay-1", *handle)
    assert answer(served, "commit", "pay-1", *handle, "--execute")["executed"] is True
    with Admin(served.bootstrap) as admin:
        wait_until(lambda: not admin.transaction_blockers())
    assert "committed" in shown(served, "commit", "pay-1", *handle, "--execute"), "once more"
    assert "INVALID_TXN_STATE" in refused(served, "abort", "pay-1", *handle, "--execute")
    opened(served, "pay-2", 0)
    assert "committed the transaction of pay-2" in shown(served, "commit", "pay-2", "--execute")


def test_a_hanging_transaction_is_found_and_aborted(served: ServedBroker) -> None:
    assert "no transaction hangs" in shown(served, "find-hanging")
    append(served, LOST, 1)
    (row,) = answer(served, "find-hanging", "flights", code=1)
    assert (row["partition"], row["producer_id"], row["first_offset"]) == (1, LOST[0], 0)
    assert answer(served, "find-hanging", "flights:0") == []
    assert answer(served, "find-hanging", "--broker-id", "2") == []
    assert str(LOST.producer_id) in run(served.bootstrap, "find-hanging", code=1)[0]
    where = ("abort", "--partition", "flights:1", "--start-offset")
    assert "open ones begin at: 0" in refused(served, *where, "5", "--execute")
    assert "a dry run" in shown(served, *where, "0")
    assert answer(served, *where, "0", "--execute")["hanging"] is True
    assert answer(served, "find-hanging") == []
    assert "one partition, as in flights:0" in refused(
        served, "abort", "--partition", "flights", "--start-offset", "0", code=2
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("abort",), "which transaction?"),
        (("abort", "x", "--partition", "t:0"), "not both"),
        (("abort", "x", "--force"), "go with --partition"),
        (("abort", "--partition", "t:0"), "--partition goes with --start-offset"),
        (("abort", "x", "--producer-id", "1"), "both or neither"),
        (("commit", "x", "--execute", "--dry-run"), "not both"),
        (("commit",), "Missing argument"),
        (("list", "--state", "Sleeping"), "is no state of a transaction"),
        (("list", "--older-than", "-5"), "not in the range"),
    ],
)
def test_wrong_arguments_are_refused_before_a_broker_is_asked(
    arguments: tuple[str, ...], words: str
) -> None:
    assert words in run("127.0.0.1:1", *arguments, "--timeout", "50", code=2)[1]


def test_states_are_completed_in_a_shell() -> None:
    complete = ShellComplete(transactions, {}, "transactions", "_COMPLETE")
    found = complete.get_completions(["list", "--state"], "prepare")
    assert [item.value for item in found] == ["PrepareCommit", "PrepareAbort", "PrepareEpochFence"]


def test_a_task_of_an_epoch_ends_with_its_epoch_alone(served: ServedBroker) -> None:
    for command in ("abort", "commit"):
        text = refused(served, command, "__hw.alerts.3", "--execute", code=2)
        assert "`headwater sinks show alerts`" in text
        assert "`headwater sinks takeover`" in text
