"""The operations of a ShareHolds request (API key 10013)."""

from __future__ import annotations

from enum import IntEnum


class ShareHoldOperation(IntEnum):
    """The values of `ShareHoldsRequest.operation`."""

    DESCRIBE = 0
    """Only tell what is held, of every owner."""
    CLAIM = 1
    """Fence the owner's runs with lower tickets."""
    HOLD = 2
    """Turn the member's locks into holds of the owner's batch."""
    ACCEPT = 3
    """Accept what the owner holds for a batch."""
    RELEASE = 4
    """Give back what the owner holds for a batch."""
    END_ACCEPTED = 5
    """An operator accepts all that the owner holds, and fences it for good."""
    END_RELEASED = 6
    """An operator gives back all that the owner holds, and fences it for good."""
