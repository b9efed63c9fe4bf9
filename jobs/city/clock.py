"""City time: a day that passes in minutes, with real seconds where the software under test works.

A record's capture and its sending have city times, a day's worth. Once it is sent, real seconds
count: `ingest time = sent + real seconds since it was due to be sent`. So a day that passes 576
times too fast does not make the log and the ingest look 576 times too slow.
"""

from __future__ import annotations

from headwater.clock import Clock

DAY_START_MS = 1_503_532_800_000
"""2017-08-24 00:00:00 UTC: the city's day."""
DAY_MS = 86_400_000
HOUR_MS = 3_600_000
BUCKET_MS = 600_000
"""Ten minutes: the buckets of the quality monitor."""


class CityClock:
    """City time as a function of real time. It stands at midnight until the day begins."""

    def __init__(self, clock: Clock, day_seconds: float) -> None:
        """`day_seconds`: the real seconds that the day takes."""
        self.clock = clock
        self.day_seconds = day_seconds
        self._real_start_ms: float | None = None

    @classmethod
    def starting(cls, clock: Clock, day_seconds: float) -> CityClock:
        """A clock whose day begins now."""
        city = cls(clock, day_seconds)
        city.begin()
        return city

    def begin(self) -> None:
        """The day begins now."""
        self._real_start_ms = self.clock.now_ms()

    @property
    def real_start_ms(self) -> float:
        """When the day begins, in real milliseconds since 1970: now, until it has begun."""
        return self.clock.now_ms() if self._real_start_ms is None else self._real_start_ms

    @property
    def has_begun(self) -> bool:
        """True once the day has begun: devices send."""
        return self._real_start_ms is not None

    @property
    def factor(self) -> float:
        """City milliseconds per real millisecond."""
        return DAY_MS / (self.day_seconds * 1000)

    def real_now_ms(self) -> float:
        """The real time, in milliseconds since 1970."""
        return self.clock.now_ms()

    def now_ms(self) -> int:
        """The city time of now."""
        return self.city_ms(self.real_now_ms())

    def city_ms(self, real_ms: float) -> int:
        """The city time of a real time."""
        return int(DAY_START_MS + (real_ms - self.real_start_ms) * self.factor)

    def real_ms(self, city_ms: float) -> float:
        """The real time of a city time."""
        return self.real_start_ms + (city_ms - DAY_START_MS) / self.factor

    def ingest_ms(self, sent_ms: float, real_ms: float) -> float:
        """The city time at which a record, sent at `sent_ms`, is stored at the real `real_ms`."""
        return sent_ms + real_ms - self.real_ms(sent_ms)

    def seconds_until(self, city_ms: float) -> float:
        """Real seconds until a city time; negative when it has passed."""
        return (self.real_ms(city_ms) - self.real_now_ms()) / 1000


def at_hour(hour: float) -> int:
    """The city time of an hour of the day, as 18.5."""
    return DAY_START_MS + round(hour * HOUR_MS)


def hour_of(city_ms: int) -> int:
    """The hour of the day of a city time."""
    return (city_ms - DAY_START_MS) // HOUR_MS


def bucket_of(city_ms: int) -> int:
    """The ten-minute bucket of the day of a city time."""
    return (city_ms - DAY_START_MS) // BUCKET_MS
