"""`headwater tier`: its commands are entry points of their own group."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
from click.testing import CliRunner

from headwater.cli.main import main
from headwater_tier.cli.group import TIER_COMMAND_GROUP, TierCommands, tier


def test_the_group_lists_the_commands_of_every_package() -> None:
    assert {"run", "repair", "compact", "vacuum"} <= set(TierCommands.entries())


def test_an_unknown_command_names_the_nearest_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tier", "compct"]) == 2
    assert "no command 'compct': did you mean compact" in capsys.readouterr().err


def test_a_command_whose_dependency_is_missing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = EntryPoint("lost", "headwater_lost.command:lost", TIER_COMMAND_GROUP)
    monkeypatch.setattr(TierCommands, "entries", staticmethod(lambda: {"lost": lost}))
    result = CliRunner().invoke(tier, ["lost"], prog_name="headwater tier")
    assert "`headwater tier lost` needs headwater_lost" in str(result.exception)
