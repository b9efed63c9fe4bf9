"""Leader selectors: every input of three brokers against a simple reference, and known cases."""

from __future__ import annotations

from itertools import combinations, permutations, product

import pytest

from headwater_broker.controller.decisions import leader_selectors
from headwater_broker.controller.decisions.leader_selectors import Case, Choice

BROKERS = (1, 2, 3)


def subsets(values: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [c for n in range(len(values) + 1) for c in combinations(values, n)]


def orders() -> list[tuple[int, ...]]:
    return [p for s in subsets(BROKERS) for p in permutations(s)]


def test_offline_over_all_inputs() -> None:
    for replicas, isr, live in product(permutations(BROKERS), orders(), subsets(BROKERS)):
        for unclean in (False, True):
            choice = leader_selectors.offline(replicas, isr, frozenset(live), unclean=unclean)
            able = [b for b in replicas if b in isr and b in live]
            if able:
                kept = tuple(b for b in isr if b in live)
                assert choice == Choice(Case.CLEAN, able[0], kept)
            elif not unclean:
                assert choice == Choice(Case.NONE_IN_SYNC)
            elif live:
                first = next(b for b in replicas if b in live)
                assert choice == Choice(Case.UNCLEAN, first, (first,))
            else:
                assert choice == Choice(Case.NONE_LIVE)


def test_assignment_order_decides_not_isr_order() -> None:
    choice = leader_selectors.offline((1, 2, 3), (3, 2), frozenset({2, 3}), unclean=False)
    assert choice == Choice(Case.CLEAN, 2, (3, 2))


def test_reassigned_over_all_inputs() -> None:
    for target, isr, live in product(orders(), orders(), subsets(BROKERS)):
        for leader in BROKERS:
            choice = leader_selectors.reassigned(target, leader, isr, frozenset(live))
            kept = tuple(b for b in isr if b in target)
            able = [b for b in target if b in kept and b in live]
            if leader in kept and leader in live:
                assert choice == Choice(Case.NOT_NEEDED, leader, kept)
            elif able:
                assert choice == Choice(Case.CLEAN, able[0], kept)
            else:
                assert choice.leader is None


@pytest.mark.parametrize(
    ("leader", "isr", "live", "case"),
    [
        (1, (1, 2), {1, 2}, Case.NOT_NEEDED),
        (2, (1, 2), {1, 2}, Case.PREFERRED),
        (2, (2,), {1, 2}, Case.PREFERRED_UNAVAILABLE),
        (2, (1, 2), {2}, Case.PREFERRED_UNAVAILABLE),
        (-1, (1,), {1}, Case.PREFERRED),
    ],
)
def test_preferred(leader: int, isr: tuple[int, ...], live: set[int], case: Case) -> None:
    choice = leader_selectors.preferred((1, 2, 3), leader, isr, frozenset(live))
    assert choice.case is case
    assert choice.leader == (1 if case is Case.PREFERRED else None)
    assert choice.isr == (isr if case is Case.PREFERRED else ())


@pytest.mark.parametrize(
    ("isr", "live", "expected"),
    [
        ((1, 3, 2), {2, 3}, Choice(Case.MOVED, 2, (3, 2))),
        ((1, 3), {2, 3}, Choice(Case.MOVED, 3, (3,))),
        ((1,), {2, 3}, Choice(Case.CANNOT_MOVE)),
        ((1, 2), {3}, Choice(Case.CANNOT_MOVE)),
    ],
)
def test_controlled_shutdown(isr: tuple[int, ...], live: set[int], expected: Choice) -> None:
    assert leader_selectors.controlled_shutdown((1, 2, 3), isr, frozenset(live), 1) == expected
