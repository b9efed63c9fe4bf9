"""The controller's event loop for one controller epoch: load the state, then decide round by round.

One task owns the machine. Watches only mark paths as changed; requests and broker responses wait in
one queue. Each round reads the changed paths, drains the queue, writes the decisions to ZooKeeper,
sends them to the brokers and answers the requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any
from urllib.parse import unquote

from headwater.clock import Clock
from headwater.config.quota_precedence import entity_of
from headwater.entropy import Entropy
from headwater.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.ordered import OrderedSet
from headwater.ports.control import ControlCalls
from headwater.ports.metadata_store import MetadataStore, NoNodeError
from headwater.wire.control import LiveBroker
from headwater_broker.controller import controller_election
from headwater_broker.controller.broker_channel import BrokerChannel, ControllerHeader
from headwater_broker.controller.controller_election import WonElection
from headwater_broker.controller.decisions.config_changes import check_change
from headwater_broker.controller.decisions.topic_deletion import DELETION_DISABLED
from headwater_broker.controller.events import (
    AutoPreferredLeaderElection,
    BrokerChange,
    BrokerConfigChange,
    ClientQuotaChange,
    DeleteTopics,
    ElectLeaders,
    Event,
    ExpireTokens,
    GroupConfigChange,
    LogDirFailure,
    Ready,
    Reassign,
    Reply,
    Tick,
    TopicConfigChange,
    TopicConfigRejected,
)
from headwater_broker.controller.machine import ControllerMachine
from headwater_broker.controller.state import ControllerConfig
from headwater_broker.controller.timings import (
    BalanceSchedule,
    ControllerTimings,
    TokenExpirySchedule,
)
from headwater_broker.controller.zk import group_config_reader, quota_reader, reader
from headwater_broker.controller.zk.writer import DeposedError, remove_requests, write_all
from headwater_broker.metadata import token_znodes, tool_znodes, znodes
from headwater_broker.metadata.log_dir_events import decode_log_dir_event
from headwater_broker.metadata.znodes import NO_DIRECTORY

WATCHED = (
    znodes.CONTROLLER,
    znodes.BROKERS,
    znodes.TOPICS,
    znodes.DELETE_REQUESTS,
    znodes.CONFIG_CHANGES,
    znodes.LOG_DIR_EVENTS,
    znodes.REASSIGN_REQUEST,
    znodes.PREFERRED_REQUEST,
)
POLLED = (znodes.CONTROLLER, znodes.BROKERS, znodes.TOPICS, znodes.DELETE_REQUESTS)
"""Paths that the timer reads too, in case a watch was lost."""
POLL_TICKS = 5
"""The timer reads `POLLED` in every fifth tick only: reading them costs more than anything else
that an idle broker does. It checks `/controller` in every tick."""

logger = logging.getLogger(__name__)


class ControllerLoop:
    """The controller while it holds one epoch. `run` returns only by an error or a cancellation."""

    def __init__(
        self,
        broker_id: int,
        cluster_id: str,
        won: WonElection,
        store: MetadataStore,
        calls: ControlCalls,
        clock: Clock,
        entropy: Entropy,
        config: ControllerConfig,
        timings: ControllerTimings,
    ) -> None:
        self.won = won
        self._timings = timings
        self.machine: ControllerMachine | None = None
        self._broker_id = broker_id
        self._header = ControllerHeader(broker_id, won.controller_epoch, cluster_id)
        self._store = store
        self._calls = calls
        self._clock = clock
        self._entropy = entropy
        self._config = config
        self._queue: deque[Event] = deque()
        self._handled_requests: list[str] = []
        self._changed_paths: set[str] = set()
        self._reported: set[str] = set()
        self._has_ended = False
        self._wake = asyncio.Event()
        self._channels: dict[int, BrokerChannel] = {}
        self._live: tuple[LiveBroker, ...] = ()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._durable: dict[int, Reply] = {}
        """Replies whose decisions are written, and that wait only for the brokers."""
        self._request_paths: dict[int, str] = {}
        self._next_token = 0
        self._answering = OrderedSet[asyncio.Task[None]]()
        self._closing = OrderedSet[asyncio.Task[None]]()
        self._tokens = TokenExpirySchedule(clock.monotonic())
        self._balance = BalanceSchedule(clock.monotonic(), timings.first_balance_s)

    @property
    def store(self) -> MetadataStore:
        """The metadata store: what no decision depends on is written there at once."""
        return self._store

    async def ask(self, make: Callable[[int], Event]) -> Any:
        """Queue the event that `make` builds with a new token; the reply, once it is durable.

        Raises KafkaError(NOT_CONTROLLER) when this epoch ends first: the outcome is unknown.
        """
        if self._has_ended:  # the service may not have noticed yet
            raise _term_ended()
        token = self._next_token
        self._next_token += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[token] = answer
        self.post(make(token))
        try:
            return await answer
        finally:
            self._waiting.pop(token, None)

    def post(self, event: Event) -> None:
        """Queue an event for the next round."""
        self._queue.append(event)
        self._wake.set()

    def mark_shutting_down(self, broker_id: int, broker_epoch: int) -> None:
        """See `ControllerMachine.mark_shutting_down`."""
        if self.machine is not None:
            self.machine.mark_shutting_down(broker_id, broker_epoch)

    def reconfigure(self, config: ControllerConfig) -> None:
        """Use these settings from the next decision on."""
        self._config = config
        if self.machine is not None:
            self.machine.state.config = config

    async def run(self) -> None:
        """Be the controller. Raises what ends this epoch: DeposedError, StoreError, ZnodeError."""
        unwatch = [self._store.watch(path, self._path_changed) for path in WATCHED]
        try:
            await self._load()
            timer = asyncio.get_running_loop().create_task(
                self._run_timer(), name="controller-tick"
            )
            try:
                while True:
                    await self._round()
                    await self._wake.wait()
                    self._wake.clear()
            finally:
                timer.cancel()
        finally:
            for end in unwatch:
                end()
            await self._end()

    async def _load(self) -> None:
        began = self._clock.monotonic()
        there = await self._store.get_many(znodes.PERSISTENT_PATHS)
        for path, node in zip(znodes.PERSISTENT_PATHS, there, strict=True):
            if node is None:
                await self._store.ensure_path(path)
        found = await reader.read_snapshot(self._store, self._report_once)
        self.machine = ControllerMachine(
            self._broker_id,
            self.won.controller_epoch,
            self._header.cluster_id,
            self._config,
            found,
            self._entropy,
        )
        self._changed_paths.update(WATCHED)
        logger.info(
            "broker %d is the controller, epoch %d: %d topics, %d brokers, loaded in %.0f ms",
            self._broker_id,
            self.won.controller_epoch,
            len(found.topics),
            len(found.registered),
            (self._clock.monotonic() - began) * 1000,
        )

    async def _end(self) -> None:
        for task in (*self._answering, *self._closing):
            task.cancel()
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()
        self._has_ended = True
        # These decisions are durable. A client that had to send the request again would be refused
        # by the next controller: the topic exists already, say.
        for reply in list(self._durable.values()):
            self._answer(reply)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(_term_ended())

    def _report_once(self, text: str) -> None:
        """Log a fault once per epoch: the timer reads the same nodes again and again."""
        if text not in self._reported:
            self._reported.add(text)
            logger.error("%s", text)

    def _path_changed(self, path: str) -> None:
        self._changed_paths.add(path)
        self._wake.set()

    async def _run_timer(self) -> None:
        for tick in count(1):
            await asyncio.sleep(self._timings.tick_s)
            # A bad node may be mended at any moment, and no watch is set on it.
            is_due = tick % POLL_TICKS == 0 or self._reported
            self._changed_paths.update(POLLED if is_due else (znodes.CONTROLLER,))
            self.post(Tick())
            self._expire_tokens()
            interval_ms = self._config.leader_imbalance_check_interval_ms
            if self._balance.is_due(self._clock.monotonic(), interval_ms):
                self.post(AutoPreferredLeaderElection())

    def _expire_tokens(self) -> None:
        now_s = self._clock.monotonic()
        if self._tokens.is_due(now_s, self._config.token_expiry_check_interval_ms):
            self.post(ExpireTokens(self._clock.now_ms()))
        if self._tokens.is_purge_due(now_s):
            self._changed_paths.add(token_znodes.TOKEN_CHANGES)

    async def _purge_token_changes(self, _machine: ControllerMachine) -> None:
        path = token_znodes.TOKEN_CHANGES
        old = self._tokens.purged(await self._store.children(path))
        self._handled_requests += [f"{path}/{name}" for name in old]

    async def _round(self) -> None:
        """Read changed paths, decide on all queued events, write, send to brokers, answer."""
        machine = self.machine
        assert machine is not None
        first = True
        while first or self._changed_paths or self._queue:
            first = False
            stale, self._changed_paths = self._changed_paths, set()
            # Read topics before deletion requests. A deletion decided in this round is not in the
            # store yet: its topic, read afterwards, would count as a new one.
            for path in (*WATCHED, token_znodes.TOKEN_CHANGES):
                if path in stale:
                    await self._refresh(machine, path)
            while self._queue:
                machine.handle(self._queue.popleft())
            await self._execute(machine.take_ready())
            # Remove a request node only when its outcome is durable.
            done, self._handled_requests = self._handled_requests, []
            await remove_requests(self._store, self.won.fence, done)

    async def _execute(self, ready: Ready) -> None:
        if ready.writes:
            await write_all(self._store, self.won.fence, ready.writes)
        for text in ready.warnings:
            logger.warning("%s", text)
        self._live = ready.live
        self._open_channels()
        for update in ready.updates:
            self._channels[update.broker_id].push(update)
        told = [u.broker_id for u in ready.updates]
        for reply in ready.replies:
            if reply.after_delivery and told:
                self._durable[reply.token] = reply
                self._start_task(self._answer_when_delivered(reply, told), self._answering)
            else:
                self._answer(reply)

    def _open_channels(self) -> None:
        live = {b.broker_id: b for b in self._live}
        for broker_id, channel in list(self._channels.items()):
            broker = live.get(broker_id)
            if broker is None or broker.broker_epoch != channel.broker.broker_epoch:
                del self._channels[broker_id]
                self._start_task(channel.close(), self._closing)
        for broker_id, broker in live.items():
            if broker_id not in self._channels:
                self._channels[broker_id] = BrokerChannel(
                    self._header,
                    broker,
                    self._calls,
                    lambda: self._live,
                    self.post,
                    self._timings.call_timeout_ms,
                )

    def _start_task(self, work: Any, keep: OrderedSet[asyncio.Task[None]]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        keep.add(task)
        task.add_done_callback(keep.discard)

    def _answer(self, reply: Reply) -> None:
        self._durable.pop(reply.token, None)
        request_path = self._request_paths.pop(reply.token, None)
        if request_path is not None:
            for code, text in reply.value.values():
                if code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                    logger.error("%s: refused: %s: %s", request_path, code.name, text)
        answer = self._waiting.get(reply.token)
        if answer is not None and not answer.done():
            answer.set_result(reply.value)

    async def _answer_when_delivered(self, reply: Reply, told: list[int]) -> None:
        waits = [self._channels[b].delivered() for b in told if b in self._channels]
        if waits:
            await asyncio.wait(waits, timeout=self._timings.delivery_wait_s)
        self._answer(reply)

    async def _refresh(self, machine: ControllerMachine, path: str) -> None:
        await _REFRESH[path](self, machine)

    async def _check_claim(self, _machine: ControllerMachine) -> None:
        if not await controller_election.is_controller(self._store):
            raise DeposedError("/controller belongs to another session")

    async def _refresh_brokers(self, machine: ControllerMachine) -> None:
        registered = await reader.read_registered(self._store, self._report_once)
        machine.handle(BrokerChange(registered))

    async def _refresh_topics(self, machine: ControllerMachine) -> None:
        names = set(await self._store.children(znodes.TOPICS))
        known = machine.state.topics.keys()
        if missing := known - names:
            raise DeposedError(f"topics were removed from ZooKeeper by hand: {sorted(missing)[:5]}")
        before = machine.state.unusable
        unknown = names - known
        owners = machine.state.topic_id_owners() if unknown else {}
        found = await reader.read_found_topics(self._store, unknown, self._report_once, owners)
        if mended := [t.name for t in found.topics if t.name in before]:
            # It may be an old topic, with leaders and data: load the whole state again.
            raise DeposedError(f"topics were mended by hand: {mended[:5]}")
        if found.topics or found.unusable != before:
            machine.handle(found)

    async def _refresh_deletions(self, machine: ControllerMachine) -> None:
        for name in await self._store.children(znodes.DELETE_REQUESTS):
            is_known = name in machine.state.topics
            if is_known and machine.state.config.delete_topic_enable:
                row = ((name, NO_DIRECTORY),)
                machine.handle(DeleteTopics(self._unawaited_token(), row, requested_in_store=True))
                continue
            if is_known:
                logger.warning(
                    "the request to delete topic %s is ignored: %s", name, DELETION_DISABLED
                )
            self._handled_requests.append(znodes.delete_request_path(name))

    async def _refresh_config_changes(self, machine: ControllerMachine) -> None:
        entities = set()
        for name in await self._store.children(znodes.CONFIG_CHANGES):
            path = f"{znodes.CONFIG_CHANGES}/{name}"
            try:
                entity = tool_znodes.decode_config_change((await self._store.get(path)).data)
            except NoNodeError:
                continue
            except znodes.ZnodeError as e:
                logger.error("a config change notification is ignored: %s", e)
                entity = ""
            entities.add(entity)
            self._handled_requests.append(path)
        for entity in sorted(entities):
            kind, _, name = entity.partition("/")
            broker = znodes.broker_of_config(name)
            if kind == "topics" and name in machine.state.topics:
                await self._reload_config(machine, name)
            elif kind == "brokers" and broker is not None:
                await self._reload_broker_config(machine, broker)
            elif kind == "groups":
                configs = await group_config_reader.read_group_configs(self._store, unquote(name))
                machine.handle(GroupConfigChange(unquote(name), configs))
            elif entity_of(entity) is not None:
                quotas = await quota_reader.read_quotas(self._store, entity)
                machine.handle(ClientQuotaChange(entity, quotas))

    async def _reload_config(self, machine: ControllerMachine, topic: str) -> None:
        """Use an edited config node if it is valid; write the old configs back if it is not. So the
        next controller reads the configs that are in effect."""
        path = znodes.topic_config_path(topic)
        node = await reader.read_node(self._store, path)
        try:
            configs = znodes.decode_overrides(path, node.data) if node else {}
            check_change(machine.state.topics[topic].configs, configs)
        except znodes.NewerVersionError as e:
            logger.error("configs of %s, written by hand, are ignored: %s", topic, e)
        except HeadwaterError as e:
            logger.error("configs of %s, written by hand, are undone: %s", topic, e)
            machine.handle(TopicConfigRejected(topic, node.version if node else None))
        else:
            machine.handle(TopicConfigChange(topic, configs, has_config=node is not None))

    async def _reload_broker_config(self, machine: ControllerMachine, broker: str) -> None:
        path = znodes.broker_config_path(broker)
        node = await reader.read_node(self._store, path)
        try:
            configs = znodes.decode_overrides(path, node.data) if node else {}
        except HeadwaterError as e:
            logger.error("configs of broker %r, written by hand, are ignored: %s", broker, e)
            return
        machine.handle(BrokerConfigChange(broker, configs, has_node=node is not None))

    async def _refresh_log_dir_events(self, machine: ControllerMachine) -> None:
        for name in await self._store.children(znodes.LOG_DIR_EVENTS):
            path = f"{znodes.LOG_DIR_EVENTS}/{name}"
            try:
                data = (await self._store.get(path)).data
                machine.handle(LogDirFailure(decode_log_dir_event(path, data)))
            except NoNodeError:
                continue
            except znodes.ZnodeError as e:
                logger.warning("a log dir event notification is ignored: %s", e)
            self._handled_requests.append(path)

    async def _refresh_reassignments(self, machine: ControllerMachine) -> None:
        """A reassignment that an old tool wrote into ZooKeeper: start it, then remove the node."""
        path = znodes.REASSIGN_REQUEST
        rows = await self._read_partition_list(path)
        if rows is not None:
            machine.handle(Reassign(self._unawaited_token(path), rows))
            self._handled_requests.append(path)

    async def _refresh_preferred(self, machine: ControllerMachine) -> None:
        path = znodes.PREFERRED_REQUEST
        rows = await self._read_partition_list(path)
        if rows is not None:
            machine.handle(ElectLeaders(self._unawaited_token(path), False, tuple(rows)))
            self._handled_requests.append(path)

    async def _read_partition_list(
        self, path: str
    ) -> dict[tuple[str, int], tuple[int, ...]] | None:
        try:
            data = (await self._store.get(path)).data
        except NoNodeError:
            return None
        try:
            return tool_znodes.decode_partition_list(path, data)
        except znodes.ZnodeError as e:
            logger.error("a request in ZooKeeper is ignored: %s", e)
            return {}

    def _unawaited_token(self, request_path: str = "") -> int:
        """A token for an event whose reply nobody awaits. Errors of a request that was read from
        ZooKeeper, at `request_path`, are logged."""
        self._next_token += 1
        if request_path:
            self._request_paths[self._next_token - 1] = request_path
        return self._next_token - 1


def _term_ended() -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is no longer the controller")


_REFRESH: dict[str, Callable[[ControllerLoop, ControllerMachine], Any]] = {
    znodes.CONTROLLER: ControllerLoop._check_claim,
    znodes.BROKERS: ControllerLoop._refresh_brokers,
    znodes.TOPICS: ControllerLoop._refresh_topics,
    znodes.DELETE_REQUESTS: ControllerLoop._refresh_deletions,
    znodes.CONFIG_CHANGES: ControllerLoop._refresh_config_changes,
    znodes.LOG_DIR_EVENTS: ControllerLoop._refresh_log_dir_events,
    znodes.REASSIGN_REQUEST: ControllerLoop._refresh_reassignments,
    znodes.PREFERRED_REQUEST: ControllerLoop._refresh_preferred,
    token_znodes.TOKEN_CHANGES: ControllerLoop._purge_token_changes,
}
