"""The guard against media: pictures and videos go to storage; a record with one is refused."""

from __future__ import annotations

from collections.abc import Sequence

from city.fields import DATA_MESSAGE_BYTES_MAX, DATA_TOPICS
from city.flows import City, Figure
from headwater import MessageTooLargeError, Producer

FLOW = "media guard"
PICTURE_BYTES = 200_000
TIMEOUT_S = 10.0


class MediaGuard:
    """The flow; it has nothing to do while the day runs."""

    name = FLOW

    def start(self, city: City) -> None:
        """Remember the city."""
        self._city = city

    def stop(self) -> None:
        """Nothing runs."""

    def figures(self) -> Sequence[Figure]:
        """A picture is refused by every data topic."""
        refused = [topic for topic in DATA_TOPICS if refuses(self._city.site.servers, topic)]
        name = f"refuse a record over {DATA_MESSAGE_BYTES_MAX:,} bytes"
        return [Figure.same(FLOW, name, list(DATA_TOPICS), refused)]


def refuses(servers: str, topic: str) -> bool:
    """True when the topic takes no picture."""
    with Producer(servers, compression_type="none") as producer:
        try:
            producer.send(topic, bytes(PICTURE_BYTES), key="picture").result(TIMEOUT_S)
        except MessageTooLargeError:
            return True
    return False
