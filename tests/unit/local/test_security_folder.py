"""The folder of a cluster's certificates: modes, renewal, a new authority in three steps."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from headwater.errors import UsageError
from headwater.local.security_folder import RotationStep, SecurityFolder
from headwater.system import SystemClock

DAY_MS = 86_400_000
LEAVES = {"broker-0": ("127.0.0.1",), "broker-1": ("127.0.0.1", "localhost")}


class SetClock(SystemClock):
    """The time is what the test says."""

    def __init__(self) -> None:
        self.ms = 1_800_000_000_000

    def now_ms(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def folder(tmp_path: Path, clock: SetClock) -> SecurityFolder:
    made = SecurityFolder(tmp_path, clock)
    assert made.create("abc", LEAVES) == ["broker-0", "broker-1"]
    return made


def test_only_the_owner_may_read(folder: SecurityFolder) -> None:
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.path.iterdir()}
    assert modes == dict.fromkeys(
        ["authority.pem", "broker-0.pem", "broker-1.pem", "ca.pem"], 0o600
    )


def test_a_second_start_keeps_what_exists(folder: SecurityFolder) -> None:
    before = folder.leaves()
    assert folder.create("abc", {**LEAVES, "broker-2": ()}) == ["broker-2"]
    assert {name: folder.leaves()[name] for name in before} == before


def test_the_trust_store_has_no_key(folder: SecurityFolder) -> None:
    assert b"PRIVATE" not in folder.trusted_path.read_bytes()


def test_a_leaf_is_renewed_after_two_thirds_of_its_life(
    folder: SecurityFolder, clock: SetClock
) -> None:
    clock.ms += 59 * DAY_MS
    assert folder.renew_due() == []
    before = folder.leaves()["broker-1"]
    clock.ms += 2 * DAY_MS
    assert folder.renew_due() == ["broker-0", "broker-1"]
    after = folder.leaves()["broker-1"]
    assert (after.subject, after.hosts) == (before.subject, before.hosts)
    assert after.not_after_ms > before.not_after_ms
    assert folder.renew_due() == []


def test_a_new_authority_comes_in_three_steps(folder: SecurityFolder) -> None:
    former = folder.authorities()
    before = folder.leaves()
    assert folder.step() is RotationStep.NONE
    folder.trust_next("abc")
    assert folder.step() is RotationStep.BOTH_TRUSTED
    assert folder.authorities()[0] == former[0] and len(folder.authorities()) == 2
    assert folder.leaves() == before, "no leaf changes before both are trusted everywhere"
    assert folder.reissue() == ["broker-0", "broker-1"]
    assert folder.step() is RotationStep.REISSUED
    assert len(folder.authorities()) == 2
    assert folder.leaves()["broker-0"].sha256 != before["broker-0"].sha256
    folder.drop_former()
    assert folder.step() is RotationStep.NONE
    assert len(folder.authorities()) == 1 and folder.authorities() != former


def test_an_interrupted_first_step_keeps_its_next_authority(folder: SecurityFolder) -> None:
    folder.trust_next("abc")
    both = folder.authorities()
    folder.trust_next("abc")
    assert folder.authorities() == both


@pytest.mark.parametrize("unwritten", ["ca.pem", "next-authority.pem"])
def test_a_crash_in_the_first_step_leaves_a_rotation_that_has_not_begun(
    folder: SecurityFolder, unwritten: str
) -> None:
    former, leaves = folder.authorities(), folder.leaves()
    obstacle = folder.path / f"{unwritten}.new"
    obstacle.mkdir()  # the write of this file fails: as if the process had died before it
    with pytest.raises(OSError):
        folder.trust_next("abc")
    obstacle.rmdir()
    assert folder.authorities()[0] == former[0], "the signer of the leaves is trusted"
    assert folder.step() is RotationStep.NONE
    with pytest.raises(UsageError, match="no next authority that is trusted"):
        folder.reissue()
    assert folder.leaves() == leaves
    folder.trust_next("abc")
    assert folder.authorities()[0] == former[0] and len(folder.authorities()) == 2
    folder.reissue()
    folder.drop_former()
    assert folder.step() is RotationStep.NONE


def test_a_next_authority_that_is_not_trusted_signs_nothing(folder: SecurityFolder) -> None:
    former = folder.trusted_path.read_bytes()
    folder.trust_next("abc")
    both = folder.authorities()
    folder.trusted_path.write_bytes(former)
    assert folder.step() is RotationStep.NONE
    with pytest.raises(UsageError, match="no next authority that is trusted"):
        folder.reissue()
    folder.trust_next("abc")
    assert folder.authorities() == both


def test_steps_out_of_order_are_refused(folder: SecurityFolder) -> None:
    with pytest.raises(UsageError, match="no next authority"):
        folder.reissue()
    folder.trust_next("abc")
    with pytest.raises(UsageError, match="reissue"):
        folder.drop_former()


def test_a_spoilt_authority_is_named(folder: SecurityFolder) -> None:
    (folder.path / "authority.pem").write_bytes(b"nothing")
    with pytest.raises(UsageError, match=r"authority\.pem lacks the key"):
        folder.create("abc", {"broker-2": ()})
