"""What one audit line says, part by part: a line of text for the log, columns for the audit topic.

Texts come from clients, so control characters are escaped: a name cannot forge a line, and a part
reads as it does in the line.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from headwater.ports.authorizer import Operation, ResourceType

DENIED = "DENIED"
"""The result of a denial."""


def pascal(name: str) -> str:
    """TRANSACTIONAL_ID -> TransactionalId, as Kafka writes codes in lines and znodes."""
    return "".join(part.capitalize() for part in name.split("_"))


def escaped(text: str) -> str:
    """Text of a client without control characters."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One line and its parts. A part that the line has no word for is empty."""

    line: str
    """The whole line, as the log has it."""
    principal: str = ""
    host: str = ""
    request: str = ""
    """The API of a change: `CreateTopics`."""
    operation: str = ""
    """What was denied: `READ`."""
    resource: str = ""
    """On what it was denied: `Topic:LITERAL:pay`."""
    result: str = ""
    """The error code of a change, `NONE` where it was made; DENIED."""
    detail: str = ""
    """What was to be changed; the rule that denied."""
    repeats: int = 0
    """How often the same was left out before this line."""

    def repeated(self, times: int) -> AuditEntry:
        """The entry that stands for so many more."""
        if not times:
            return self
        return replace(self, line=f"{self.line} ({times} more times)", repeats=times)


def note(text: str) -> AuditEntry:
    """A line about the lines themselves."""
    return AuditEntry(line=text, detail=text)


class AskedChange(NamedTuple):
    """A change that an administrator asked for, and what became of it."""

    principal: str
    host: str
    request: str
    result: str
    detail: str

    @property
    def text(self) -> str:
        """The line without who asked. The result comes before the names, which clients choose."""
        asked = f"requested {self.request} from host = {self.host}"
        return f"{asked}, result = {self.result}: {self.detail}"

    def entry(self) -> AuditEntry:
        """Its entry."""
        return AuditEntry(
            line=f"Principal = {escaped(self.principal)} {escaped(self.text)}",
            principal=escaped(self.principal),
            host=escaped(self.host),
            request=self.request,
            result=self.result,
            detail=escaped(self.detail),
        )


class Decision(NamedTuple):
    """A decision of the authorizer."""

    principal: str
    host: str
    operation: Operation
    resource: ResourceType
    name: str
    rule: object

    def line(self, outcome: str) -> str:
        """As Kafka's authorizer writes it; `outcome`: Allowed or Denied."""
        return (
            f"Principal = {escaped(self.principal)} is {outcome} "
            f"operation = {self.operation.name} from host = {escaped(self.host)} "
            f"on resource = {self.where} based on rule {escaped(str(self.rule))}"
        )

    @property
    def where(self) -> str:
        """The resource, as Kafka writes it."""
        return f"{pascal(self.resource.name)}:LITERAL:{escaped(self.name)}"

    def denial(self) -> AuditEntry:
        """The entry of a denial."""
        return AuditEntry(
            line=self.line("Denied"),
            principal=escaped(self.principal),
            host=escaped(self.host),
            operation=self.operation.name,
            resource=self.where,
            result=DENIED,
            detail=escaped(str(self.rule)),
        )
