"""The catalog's writer as a thread of the tier service: a slow table delays no tiering.

Nothing here ends the service: what fails is tried again, and `status` says what.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from headwater.client.blocking.broker_metadata import Topic
from headwater.errors import HeadwaterError
from headwater_tier.catalog.open import CatalogOptions, OpenCatalog
from headwater_tier.catalog.writer import CatalogStatus

logger = logging.getLogger(__name__)

TICK_S = 0.3
REOPEN_S = 5.0


class CatalogKeeper:
    """Ticks a writer until `close`. Other threads may ask `admits` and `status`."""

    def __init__(
        self,
        options: CatalogOptions,
        open_catalog: Callable[[CatalogOptions], OpenCatalog] = OpenCatalog,
    ) -> None:
        """`open_catalog`: tests give another one."""
        self._options, self._open_catalog = options, open_catalog
        self._stop = threading.Event()
        self._opened: OpenCatalog | None = None
        self._problem = "the catalog is not open yet"
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, name="catalog", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def admits(self, topic: Topic) -> bool:
        """True once the topic's row is committed: its first log commit waits for it. A catalog that
        cannot be written stops no tiering: its status says so."""
        opened = self._opened
        if opened is None or self._problem:
            return self._has_failed
        writer = opened.writer
        return writer.has_topic(topic.name, topic.uuid) or bool(writer.last_error)

    @property
    def status(self) -> CatalogStatus:
        """How the catalog stands."""
        opened = self._opened
        if opened is None or self._problem:
            return CatalogStatus("", -1, 0, keeps_credentials=False, last_error=self._problem)
        return opened.writer.status

    def close(self) -> None:
        """End the thread and its connections."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with self._open_catalog(self._options) as opened:
                    self._opened, self._problem = opened, ""
                    while not self._stop.wait(TICK_S):
                        opened.writer.tick()
            except (HeadwaterError, OSError) as error:
                text = " ".join(str(error).split())
                if text != self._problem:
                    logger.warning("the catalog is not kept: %s", text)
                self._problem, self._has_failed = text, True
            except Exception as error:
                logger.exception("the catalog is not kept")
                self._problem, self._has_failed = repr(error), True
            self._stop.wait(REOPEN_S)
