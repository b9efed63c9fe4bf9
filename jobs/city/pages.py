"""The live pages during the day, in a process of their own, at the site that works."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Sequence
from typing import Any

from city.child import Child
from city.curves import Curves
from city.fields import TRACKS
from city.flows import City, Figure, Site
from city.lookup import checkpoints_of, save_lookup
from city.watch_flow import Watch

FLOW = "pages"
HOST = "127.0.0.1"
HTTP_TIMEOUT_S = 10
SHOWN_WITHIN_S = 10.0
POLL_S = 0.3


class Pages:
    """The flow: it starts the pages, and compares what they show with the topic."""

    name = FLOW

    def __init__(self, port: int, watch: Watch, curves: Curves, show: Any) -> None:
        """`show` prints a line for the person who runs the city."""
        self._curves = curves
        self._port = port
        self._watch = watch
        self._show = show
        self._found: dict[str, int] = {}

    def start(self, city: City) -> None:
        """Start them, and say where they are."""
        self._city = city
        save_lookup(checkpoints_of(city.world.deployment), city.out / "checkpoints.json")
        self._begin(city.site)
        self._curves.start(city)
        self._show(
            f"  live pages: http://{HOST}:{self._port}/ and http://{HOST}:{self._port}/police"
        )
        city.on_switch.append(self._move)

    def _begin(self, site: Site) -> None:
        out = self._city.out
        arguments = ["--bootstrap-server", site.servers, "--port", str(self._port)]
        arguments += ["--checkpoints", str(out / "checkpoints.json")]
        arguments += ["--videos", str(out / "storage" / "videos")]
        arguments += ["--clips", str(out / "storage" / "clips")]
        self._child = Child("city.web.server", arguments, out / "pages.log")
        self._child.wait_ready()

    def _move(self, site: Site) -> None:
        self._child.kill()
        self._begin(site)

    def stop(self) -> None:
        """Look once more. They stay up, for `--keep`, and end with the program."""
        self._curves.stop()
        clock = self._city.clock.clock
        until_s = clock.monotonic() + SHOWN_WITHIN_S
        while self._shown() != self._in_topic() and clock.monotonic() < until_s:
            threading.Event().wait(POLL_S)
        self._found = self._shown()

    def _shown(self) -> dict[str, int]:
        """Track -> points on the police page."""
        tracks = read_sections(self._port, "police").get("tracks", {})
        return {identity: head["total"] for identity, head in tracks.items() if head["total"]}

    def _in_topic(self) -> dict[str, int]:
        """Track -> points in the topic."""
        found: dict[str, int] = {}
        for point in self._watch.last_reader().points(TRACKS):
            identity = point.told["instruction_id"]
            found[identity] = found.get(identity, 0) + 1
        return found

    def figures(self) -> Sequence[Figure]:
        """What the police page shows of each track, against the topic."""
        topic, shown = self._in_topic(), self._found
        name = "tracks on the police page"
        said = f"{len(shown)} tracks, {sum(shown.values()):,} points"
        expected = f"{len(topic)} tracks, {sum(topic.values()):,} points"
        return [Figure(FLOW, name, expected, said, shown == topic)]


def read_sections(port: int, page: str) -> dict[str, Any]:
    """The first event of a page's stream: all of its sections."""
    connection = http.client.HTTPConnection(HOST, port, timeout=HTTP_TIMEOUT_S)
    try:
        connection.request("GET", f"/events/{page}")
        response = connection.getresponse()
        while line := response.readline():
            if line.startswith(b"data: "):
                found: dict[str, Any] = json.loads(line[6:])
                return found
        return {}
    finally:
        connection.close()
