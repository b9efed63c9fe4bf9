"""How long a client over its quota is throttled: throttle_time_ms (KIP-13, KIP-219). Pure.

`client_quotas` measures requests, `network.connection_quotas` new connections.
"""

from __future__ import annotations

from headwater_broker.quota.rate import WindowedRate


def throttle_s(rate: WindowedRate, per_second: float, now: float) -> float:
    """Seconds of silence until the rate has fallen to the quota `per_second`; 0: it has."""
    amount, span_s = rate.amount_and_span_s(now)
    return max(amount / per_second - span_s, 0.0)


def throttle_time_ms(rate: WindowedRate, per_second: float, now: float, ms_max: int) -> int:
    """throttle_time_ms of a response: 0 within the quota, else from 1 to `ms_max`."""
    seconds = throttle_s(rate, per_second, now)
    return min(max(int(seconds * 1000), 1), ms_max) if seconds > 0 else 0
