"""Creation of topics on demand (Kafka's `AutoTopicCreationManager`): topics that clients ask for
while auto.create.topics.enable is on, and the internal topics of the coordinators."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from headwater.clock import Clock
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headwater.wire.schema import decode, encode
from headwater_broker.api.api_config import ApiConfig
from headwater_broker.api.background_calls import Background
from headwater_broker.api.failed_topic_creations import FailedTopicCreations
from headwater_broker.metadata.controller_channel import ControllerChannel

CREATE_VERSION = 7
CREATE_TIMEOUT_MS = 15_000
NAMES_LOGGED = 10

logger = logging.getLogger(__name__)


class AutoTopicCreation:
    """Has the controller create topics. All methods run on the broker's loop."""

    def __init__(
        self,
        controller: ControllerChannel,
        background: Background,
        clock: Clock,
        config_now: Callable[[], ApiConfig],
    ) -> None:
        self.failures = FailedTopicCreations()
        """Why topics were not created: the answer to the next requests for their metadata."""
        self._controller = controller
        self._background = background
        self._clock = clock
        self._config_now = config_now

    def create(
        self,
        names: Iterable[str],
        principal: str,
        *,
        on_created: Callable[[list[str]], None] | None = None,
    ) -> None:
        """Have the controller create topics for User:`principal`, in one request per topic at a
        time; `on_created(names)` is called with those that it has created.

        The client repeats its Metadata request. It then gets the topics, or for a while the error
        of the creation (`failure`).
        """
        self._background.together(
            [("create", name) for name in names],
            lambda keys: self._create([n for _, n in keys], f"User:{principal}", on_created),
        )

    def failure(self, name: str) -> ErrorCode | None:
        """Why the last creation of `name` failed; None if it did not."""
        return self.failures.find(name, self._clock)

    def creatable(self, name: str) -> CreatableTopic:
        """The topic to create: with the broker's defaults, or an internal topic's own settings.

        An internal topic always asks for its full replication factor, and creation fails while too
        few brokers are live (KIP-115). Created by the first broker that is up, it would have one
        replica for ever, and groups would lose their committed offsets with that broker.
        """
        config = self._config_now()
        internal = config.internal_topics.get(name)
        if internal is None:
            return CreatableTopic(
                name=name,
                num_partitions=config.num_partitions,
                replication_factor=config.default_replication_factor,
            )
        return CreatableTopic(
            name=name,
            num_partitions=internal.num_partitions,
            replication_factor=internal.replication_factor,
            configs=tuple(CreatableTopicConfig(name=k, value=v) for k, v in internal.configs),
        )

    async def _create(
        self,
        names: list[str],
        principal: str,
        on_created: Callable[[list[str]], None] | None,
    ) -> None:
        topics = tuple(self.creatable(name) for name in names)
        request = CreateTopicsRequest(topics=topics, timeout_ms=CREATE_TIMEOUT_MS)
        body = encode(request, CREATE_VERSION)
        key = CreateTopicsRequest.api_key
        try:
            reply = await self._controller.forward(key, CREATE_VERSION, body, principal)
        except KafkaError as error:
            some = ", ".join(names[:NAMES_LOGGED])
            logger.warning("%d topics were not created on demand: %s (%s)", len(names), error, some)
            for name in names:
                self.failures.put(name, error.code, self._clock)
            return
        answered = decode(CreateTopicsResponse, CREATE_VERSION, reply).topics
        if on_created is not None:
            on_created([topic.name for topic in answered if not topic.error_code])
        for topic in answered:
            code = ErrorCode(topic.error_code)
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                continue
            logger.warning(
                "topic %s was not created on demand: %s (%s)",
                topic.name, code.name, topic.error_message,
            )  # fmt: skip
            self.failures.put(topic.name, code, self._clock)
