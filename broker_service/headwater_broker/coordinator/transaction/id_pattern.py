"""Patterns of transactional ids (KIP-1152), matched in linear time, as Kafka's RE2J does.

Python's `re` takes exponential time for some patterns and would hold the broker's loop. A pattern
becomes an automaton of states (Thompson), whose sets of states are remembered per character. The
syntax is RE2's without flags, Unicode classes and word boundaries: these are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from headwater.errors import ErrorCode, KafkaError

STATES_MAX = 2_000
REPEAT_MAX = 1_000
"""RE2's limit on {m,n}."""
DEPTH_MAX = 50
SETS_MAX = 5_000
"""Remembered sets of states; one more forgets them all."""

_COUNT = re.compile(r"\{(\d+)(,?)(\d*)\}")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_SHORTHANDS = frozenset("dDwWsS")
_QUANTIFIERS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
"""Quantifier -> (least, most); None: no limit."""

IsIn = Callable[[str], bool]
_Fragment = tuple[int, int]
"""(first state, last state)."""


class _Automaton:
    """States with one transition on a character, or up to two without."""

    def __init__(self) -> None:
        self.on: list[IsIn | None] = []
        self.to: list[list[int]] = []
        self.at: list[str] = []
        """Of an empty transition: "^" holds at the begin of the text only, "$" at its end."""

    def state(self, on: IsIn | None = None, at: str = "") -> int:
        if len(self.on) >= STATES_MAX:
            raise _bad("the pattern is too large")
        self.on.append(on)
        self.to.append([])
        self.at.append(at)
        return len(self.on) - 1


def _bad(detail: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, detail)


class IdPattern:
    """A pattern that matches whole transactional ids."""

    def __init__(self, pattern: str) -> None:
        """Raises KafkaError(INVALID_REGULAR_EXPRESSION)."""
        parser = _Parser(pattern)
        first, last = parser.alternatives()
        if parser.position < len(pattern):
            raise _bad(f"unexpected ) at {parser.position} of {pattern!r}")
        self._automaton, self._last = parser.automaton, last
        self._start = self._closure({first}, is_start=True)
        self._known: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, text: str) -> bool:
        """True when the pattern matches all of `text`."""
        states = self._start
        for char in text:
            following = self._known.get((states, char))
            if following is None:
                following = self._follow(states, char)
            if not following:
                return False
            states = following
        is_start = not text
        return self._last in self._closure(set(states), is_start=is_start, is_end=True)

    def _follow(self, states: frozenset[int], char: str) -> frozenset[int]:
        automaton = self._automaton
        reached: set[int] = set()
        for state in states:
            on = automaton.on[state]
            if on is not None and on(char):
                reached.update(automaton.to[state])
        following = self._closure(reached)
        if len(self._known) >= SETS_MAX:
            self._known.clear()
        self._known[states, char] = following
        return following

    def _closure(
        self, states: set[int], *, is_start: bool = False, is_end: bool = False
    ) -> frozenset[int]:
        """The states that are reached without a character."""
        automaton, todo = self._automaton, list(states)
        while todo:
            state = todo.pop()
            if automaton.on[state] is not None:
                continue
            at = automaton.at[state]
            if (at == "^" and not is_start) or (at == "$" and not is_end):
                continue
            for following in automaton.to[state]:
                if following not in states:
                    states.add(following)
                    todo.append(following)
        return frozenset(states)


class _Parser:
    """Recursive descent; each method returns a fragment of the automaton."""

    def __init__(self, pattern: str) -> None:
        self.automaton = _Automaton()
        self.position = 0
        self._pattern = pattern
        self._depth = 0

    def _next(self) -> str:
        return self._pattern[self.position : self.position + 1]

    def alternatives(self) -> _Fragment:
        automaton = self.automaton
        first, last = automaton.state(), automaton.state()
        while True:
            begin, end = self._sequence()
            automaton.to[first].append(begin)
            automaton.to[end].append(last)
            if self._next() != "|":
                return first, last
            self.position += 1

    def _sequence(self) -> _Fragment:
        automaton = self.automaton
        first = last = automaton.state()
        while self._next() not in ("", "|", ")"):
            begin, end = self._repeated()
            automaton.to[last].append(begin)
            last = end
        return first, last

    def _repeated(self) -> _Fragment:
        at = self.position
        fragment = self._atom()
        least, most = self._count()
        if (least, most) == (1, 1):
            return fragment
        after, automaton = self.position, self.automaton
        first, last = automaton.state(), automaton.state()
        before = first
        for number in range(least + 1 if most is None else most):
            begin, end = fragment if number == 0 else self._again(at, after)
            automaton.to[before].append(begin)
            if number >= least:  # it may be left out, with all that follow
                automaton.to[before].append(last)
            if most is None and number == least:
                automaton.to[end].append(before)
            else:
                before = end
        automaton.to[before].append(last)
        return first, last

    def _again(self, at: int, after: int) -> _Fragment:
        """A copy of the atom that begins at `at`."""
        self.position = at
        fragment = self._atom()
        self.position = after
        return fragment

    def _count(self) -> tuple[int, int | None]:
        """(least, most) of the quantifier here; most None: no limit."""
        char = self._next()
        count = _COUNT.match(self._pattern, self.position)
        if char in _QUANTIFIERS:
            least, most = _QUANTIFIERS[char]
            self.position += 1
        elif count is not None:
            least = int(count[1])
            most = least if not count[2] else int(count[3]) if count[3] else None
            if max(least, most or 0) > REPEAT_MAX or (most is not None and most < least):
                raise _bad(f"bad repetition {count[0]} in {self._pattern!r}")
            self.position = count.end()
        else:
            return 1, 1
        if self._next() == "?":  # lazy: a match of the whole text is the same
            self.position += 1
        if self._next() in _QUANTIFIERS:
            raise _bad(f"nothing to repeat at {self.position} of {self._pattern!r}")
        return least, most

    def _atom(self) -> _Fragment:
        char = self._next()
        self.position += 1
        if char in _QUANTIFIERS:
            raise _bad(f"nothing to repeat at {self.position - 1} of {self._pattern!r}")
        if char == "(":
            return self._group()
        if char == "[":
            return self._char(self._class())
        if char == ".":
            return self._char(lambda c: c != "\n")
        if char in ("^", "$"):
            return self._anchor(char)
        if char == "\\":
            return self._escape()
        return self._char(lambda c: c == char)

    def _char(self, on: IsIn) -> _Fragment:
        first, last = self.automaton.state(on), self.automaton.state()
        self.automaton.to[first].append(last)
        return first, last

    def _anchor(self, at: str) -> _Fragment:
        first, last = self.automaton.state(at=at), self.automaton.state()
        self.automaton.to[first].append(last)
        return first, last

    def _group(self) -> _Fragment:
        if self._next() == "?":
            found = re.compile(r"\?(?::|P?<\w+>)").match(self._pattern, self.position)
            if found is None:
                raise _bad(f"unsupported group at {self.position - 1} of {self._pattern!r}")
            self.position = found.end()
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise _bad("the pattern is nested too deeply")
        fragment = self.alternatives()
        self._depth -= 1
        if self._next() != ")":
            raise _bad(f"missing ) in {self._pattern!r}")
        self.position += 1
        return fragment

    def _class(self) -> IsIn:
        found = _CLASS.match(self._pattern, self.position - 1)
        if found is None or "[:" in found[0]:
            raise _bad(f"bad class at {self.position - 1} of {self._pattern!r}")
        try:
            one = re.compile(_for_python(found[0]), re.ASCII)
        except re.error as error:
            raise _bad(f"bad class {found[0]}: {error}") from error
        self.position = found.end()
        return lambda c: one.fullmatch(c) is not None

    def _escape(self) -> _Fragment:
        char = self._next()
        self.position += 1
        if char in _SHORTHANDS:
            one = re.compile(f"\\{char}", re.ASCII)
            return self._char(lambda c: one.fullmatch(c) is not None)
        if char in _ESCAPES:
            return self._char(lambda c: c == _ESCAPES[char])
        if not char or char.isalnum():
            raise _bad(f"unsupported escape \\{char} in {self._pattern!r}")
        return self._char(lambda c: c == char)


def _for_python(text: str) -> str:
    """A class for Python's `re`, which warns of a `[` inside."""
    return "[" + text[1:].replace("[", "\\[")
