"""The pages' process.

python -m city.web.server --bootstrap-server 127.0.0.1:9092 --checkpoints city-out/checkpoints.json
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import click
import uvicorn

from city.fields import STATISTICS_INSTRUCTIONS
from city.instructions import CountInstruction
from city.logins import login_of
from city.lookup import read_lookup
from city.web.app import CityPages
from city.web.state import CITY_FLOW
from city.web.tail import Tail
from headwater import Producer
from headwater.cli.main import run_command

HOST = "127.0.0.1"
FLOW_MINUTES = 10
GRACE_S = 2
START_TIMEOUT_S = 20


class PagesServer(uvicorn.Server):
    """Prints a JSON line once it listens, and ends with its stdin."""

    async def startup(self, sockets: list[Any] | None = None) -> None:
        """Listen, then say so."""
        await super().startup(sockets)
        if self.started:
            url = f"http://{HOST}:{self.config.port}/"
            print(json.dumps({"ready": True, "url": url}), flush=True)

    def stop_at_end_of_stdin(self, tail: Tail) -> None:
        """Whoever started it holds its stdin open."""
        while os.read(sys.stdin.fileno(), 4096):
            pass  # nothing is asked of the pages there
        self.should_exit = True
        tail.close()  # the streams end: uvicorn waits for them


def serve(pages: CityPages, tail: Tail, port: int) -> int:
    """Serve until SIGTERM, SIGINT, or the end of stdin; the exit code."""
    hosts = frozenset((f"{HOST}:{port}", f"localhost:{port}"))
    config = uvicorn.Config(
        pages.app(hosts),
        host=HOST,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    server = PagesServer(config)
    threading.Thread(target=server.stop_at_end_of_stdin, args=(tail,), daemon=True).start()
    server.run()
    return 0 if server.started else 1


@click.command("pages")
@click.option("--bootstrap-server", "servers", required=True, help="HOST:PORT,...")
@click.option("--command-config", "login", type=click.Path(path_type=Path), help="The login.")
@click.option("--checkpoints", required=True, type=click.Path(path_type=Path), help="The lookup.")
@click.option("--videos", type=click.Path(path_type=Path), help="The folder of videos.")
@click.option("--clips", type=click.Path(path_type=Path), help="The folder of clips.")
@click.option("--port", default=8085, show_default=True, help="Where to listen on loopback.")
def pages(
    servers: str,
    login: Path | None,
    checkpoints: Path,
    videos: Path | None,
    clips: Path | None,
    port: int,
) -> int:
    """Serve the city's pages: / for traffic users, /police for the police."""
    lookup = read_lookup(checkpoints)
    options = login_of(login)
    with Producer(servers, client_id="city-web", linger_ms=0, **options) as producer:
        tail = Tail(servers, options)
        tail.start()
        tail.wait_caught_up(START_TIMEOUT_S)
        if CITY_FLOW not in tail.state.asked_counts:
            asked = CountInstruction(CITY_FLOW, "vehicle", minutes=FLOW_MINUTES)
            sent = producer.send(STATISTICS_INSTRUCTIONS, asked.value(), key=CITY_FLOW)
            sent.result(START_TIMEOUT_S)
        return serve(CityPages(tail, producer, lookup, videos, clips), tail, port)


if __name__ == "__main__":
    sys.exit(run_command(pages))
