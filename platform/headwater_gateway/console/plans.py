"""Writes in two steps: a plan that names the change, and its confirmation. Pure.

A plan's seal covers who asked, the form, the change and the state that was seen, so that a
confirmation of anything else, or of a state that has moved, is refused. A seal is good for once.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from headwater.entropy import Entropy
from headwater.errors import HeadwaterError

USED_MAX = 10_000
"""Seals that are remembered as used."""
NONCE_BYTES = 12
SIGNATURE_LETTERS = 24
FIELDS = "fields"
SEAL = "seal"
OWN_FIELDS = frozenset({FIELDS, SEAL})
"""Fields of the plan's own; all others are the view's."""


class StateMovedError(HeadwaterError):
    """What the plan was made for has changed since, or the plan was confirmed already."""


class Change(NamedTuple):
    """One line of a plan: what changes, from what, to what (None: there is nothing)."""

    what: str
    before: str | None
    after: str | None
    is_text: bool = False
    """Several lines, shown as such."""

    def __str__(self) -> str:
        shown = ["nothing" if v is None else repr(v) for v in (self.before, self.after)]
        return f"{self.what}: {shown[0]} -> {shown[1]}"


class Secret(NamedTuple):
    """What the confirmation asks for and the plan never holds."""

    name: str
    label: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A write that is ready to be confirmed."""

    title: str
    """The change in words: `Set 2 configs of topic flights`."""
    changes: tuple[Change, ...]
    state: Any
    """What was seen of the cluster, as JSON; if it is another at the confirmation: 409."""
    apply: Callable[[Mapping[str, str]], Awaitable[str]]
    """Does it, given the secrets; one line that says what was done."""
    back: str
    """The address of the page to go back to."""
    warnings: tuple[str, ...] = ()
    secrets: tuple[Secret, ...] = ()
    is_dangerous: bool = False
    """It destroys something: the button is red."""


class Seals:
    """Makes and checks the seals of plans; one per process."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy
        self._key = entropy.randbytes(32)
        self._used: OrderedDict[str, None] = OrderedDict()

    def seal(self, owner: str, path: str, fields: Mapping[str, str], plan: Plan) -> str:
        """The seal that confirms this plan."""
        nonce = base64.urlsafe_b64encode(self._entropy.randbytes(NONCE_BYTES)).decode()
        return f"{nonce}.{self._digest(nonce, owner, path, fields, plan)}"

    def use(self, seal: str, owner: str, path: str, fields: Mapping[str, str], plan: Plan) -> None:
        """Let a confirmation through, once. Raises StateMovedError."""
        nonce, _, given = seal.partition(".")
        wanted = self._digest(nonce, owner, path, fields, plan)
        if not hmac.compare_digest(wanted.encode(), given.encode("utf-8", "replace")):
            raise StateMovedError("the state has moved since this plan was made: see the new plan")
        if nonce in self._used:
            raise StateMovedError("this plan was confirmed already: see what it would do now")
        self._used[nonce] = None
        if len(self._used) > USED_MAX:
            self._used.popitem(last=False)

    def signed(self, text: str) -> str:
        """A text that may travel in an address: `verified` gives it back, and no other."""
        return f"{self._mac('told', text)[:SIGNATURE_LETTERS]}.{text}"

    def verified(self, signed: str) -> str:
        """The text, or nothing if this process did not sign it."""
        text = signed.partition(".")[2]
        is_ours = hmac.compare_digest(self.signed(text).encode(), signed.encode("utf-8", "replace"))
        return text if text and is_ours else ""

    def _digest(
        self, nonce: str, owner: str, path: str, fields: Mapping[str, str], plan: Plan
    ) -> str:
        seen = [nonce, owner, path, sorted(fields.items()), plan.title, plan.changes, plan.state]
        return self._mac("plan", json.dumps(seen, sort_keys=True, default=str))

    def _mac(self, kind: str, text: str) -> str:
        message = f"{kind}:{text}".encode("utf-8", "surrogatepass")
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()


def packed(fields: Mapping[str, str]) -> str:
    """The view's fields as one value of a form, whatever characters they hold."""
    return base64.urlsafe_b64encode(json.dumps(dict(fields)).encode()).decode()


def unpacked(text: str) -> dict[str, str]:
    """The fields that `packed` was given. Raises ValueError."""
    try:
        found = json.loads(base64.urlsafe_b64decode(text.encode()))
    except (binascii.Error, UnicodeError, RecursionError) as error:
        raise ValueError("the form is damaged") from error
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise ValueError("the form is damaged")
    return found
