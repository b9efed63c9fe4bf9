"""`headwater sinks` against one broker of ours."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

from headwater.cli.main import run_command
from headwater.cli.sink_tables import sink_table
from headwater.cli.sinks import sinks
from headwater.client.blocking.epoch_client import EpochClient
from headwater.client.sink_values import SinkDescription, SinkEpoch
from unit.client.served_broker import ServedBroker
from unit.client.sink_broker import RUN, client, served, writer_of, written

__all__ = ["client", "served"]


def run(served: ServedBroker, *arguments: str, code: int = 0) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        given = [*arguments, "--bootstrap-server", served.bootstrap]
        found = run_command(sinks, given, "headwater sinks")
    assert found == code, f"{arguments}: {found}\n{out.getvalue()}\n{err.getvalue()}"
    return out.getvalue(), err.getvalue()


def answer(served: ServedBroker, *arguments: str, code: int = 0) -> Any:
    return json.loads(run(served, *arguments, "--json", code=code)[0])


def shown(served: ServedBroker, *arguments: str) -> str:
    return run(served, *arguments)[0]


def refused(served: ServedBroker, *arguments: str, code: int = 1) -> str:
    return run(served, *arguments, code=code)[1]


def test_sinks_are_listed_and_shown(served: ServedBroker, client: EpochClient) -> None:
    assert "no sinks" in shown(served, "list")
    first = writer_of(client, 0)
    client.commit(first, written(served, client, first))
    written(served, client, writer_of(client, 1))
    other = writer_of(client, 0, "copies")
    client.commit(other, written(served, client, other))
    assert [row["sink"] for row in answer(served, "list")] == ["alerts", "copies"]
    assert [row["sink"] for row in answer(served, "list", "--state", "open")] == ["alerts"]
    assert answer(served, "list", "--older-than", str(10**15)) == []
    text = shown(served, "list")
    assert "1 Open" in text and "copies" in text
    (document,) = answer(served, "show", "alerts")
    assert (document["owner"], document["last_epoch"]) == ("query", 0)
    (epoch,) = document["epochs"]
    assert [(p["task"], p["partitions"]) for p in epoch["participants"]] == [
        (0, [{"topic": "flights", "partition": 0}]),
        (1, [{"topic": "flights", "partition": 1}]),
    ]
    text = shown(served, "show", "alerts")
    assert "epoch 1: Open" in text and "is aborted in" in text and "flights-1" in text
    out, err = run(served, "show", "never", "copies", code=1)
    assert "copies" in out and "sink never does not exist" in err


def test_a_prepared_epoch_is_decided_only_when_it_is_meant(
    served: ServedBroker, client: EpochClient
) -> None:
    writer = writer_of(client, 3)
    client.prepare(writer, written(served, client, writer))
    assert answer(served, "commit", "alerts", "3")["executed"] is False
    assert "a dry run: give --execute to abort epoch 3" in shown(served, "abort", "alerts", "3")
    assert "prepared: 3" in refused(served, "abort", "alerts", "4", code=2)
    assert "not both" in refused(served, "abort", "alerts", "3", "--execute", "--dry-run", code=2)
    assert "is Prepared" in refused(served, "delete", "alerts", "--execute")
    assert answer(served, "show", "alerts")[0]["epochs"][0]["state"] == "Prepared"
    done = shown(served, "commit", "alerts", "3", "--execute")
    assert done == "committed epoch 3 of sink alerts\n"
    assert "committed" in shown(served, "commit", "alerts", "3", "--execute"), "once more"
    assert "nothing to do" in shown(served, "commit", "alerts", "3")
    assert "INVALID_TXN_STATE" in refused(served, "abort", "alerts", "3", "--execute")
    assert "a dry run" in shown(served, "delete", "alerts")
    assert "deleted sink alerts" in shown(served, "delete", "alerts", "--execute")
    assert answer(served, "list") == []


def test_a_takeover_says_what_it_needs(served: ServedBroker, client: EpochClient) -> None:
    writer = writer_of(client, 3)
    client.commit(writer, written(served, client, writer))
    assert "nothing to change" in refused(served, "takeover", "alerts", code=2)
    both = ("--owner", "x", "--next-owner")
    assert "not both" in refused(served, "takeover", "alerts", *both, code=2)
    assert "--owner is empty" in refused(served, "takeover", "alerts", "--owner", "", code=2)
    assert "a dry run" in shown(served, "takeover", "alerts", "--last-epoch", "1")
    assert answer(served, "show", "alerts")[0]["last_epoch"] == 3
    after = answer(served, "takeover", "alerts", "--last-epoch", "1", "--execute")
    assert (after["owner"], after["last_epoch"], after["executed"]) == ("query", 1, True)
    after = answer(served, "takeover", "alerts", "--next-owner", "--execute")
    assert (after["owner"], after["last_epoch"]) == ("", 1)
    assert "the next query that writes" in shown(served, "show", "alerts")
    assert "RESOURCE_NOT_FOUND" in refused(served, "takeover", "never", *both[:2])


def test_a_narrow_terminal_keeps_the_state() -> None:
    epoch = SinkEpoch(7, RUN, 3, "Prepared", 0, None, ())
    sink = SinkDescription("alerts", "o" * 36, "query", RUN, 3, 6, 0, 0, 4, 1, (epoch,))
    table = sink_table([sink], 3_600_000, 45)
    assert [c.header for c in table.columns] == ["sink", "last epoch", "not complete", "for"]
    assert str(next(iter(table.columns[2].cells))) == "7 Prepared"
