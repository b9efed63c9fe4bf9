"""The controller service of one broker: elected as the controller, or on standby.

service = ControllerService(ControllerIdentity(...), store, calls, clock, entropy, config)
await service.start()
... control server: service.handlers(); ControllerChannel(local=service) ...
await service.stop()
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from headwater.clock import Clock
from headwater.config.layers import BrokerSettings
from headwater.entropy import Entropy
from headwater.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.ports.control import ControlCalls, ControlHandler
from headwater.ports.metadata_store import MetadataStore, SessionState, StoreError
from headwater.wire.control import (
    AllocateProducerIdsReply,
    AllocateProducerIdsRequest,
    AlterPartitionReply,
    AlterPartitionRequest,
    AssignReplicasToDirsReply,
    AssignReplicasToDirsRequest,
    Control,
    ControlledShutdownReply,
    ControlledShutdownRequest,
    ForwardReply,
    ForwardRequest,
)
from headwater_broker.controller import controller_election
from headwater_broker.controller.admin_requests import AdminExecutor
from headwater_broker.controller.controller_loop import ControllerLoop
from headwater_broker.controller.events import (
    AllocateProducerIds,
    AlterPartition,
    AssignReplicaToDir,
    ControlledShutdown,
)
from headwater_broker.controller.state import ControllerConfig, ControllerState
from headwater_broker.controller.timings import ControllerTimings
from headwater_broker.controller.token_requests import TOKEN_KEYS, TokenExecutor
from headwater_broker.metadata import znodes

RETRY_DELAY_S = 0.1
SHUTDOWN_GATHER_S = 0.1
"""Brokers that stop together send ControlledShutdown within this time. The controller waits for it,
so that it moves no leader from one stopping broker to another."""


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerIdentity:
    """The broker that this service belongs to. `settings` give the defaults of topic configs."""

    broker_id: int
    cluster_id: str
    control_address: str
    settings: Callable[[], BrokerSettings] = BrokerSettings


class ControllerService:
    """Takes part in the election and runs the controller loop of each epoch that it wins.

    On standby it answers NOT_CONTROLLER.
    """

    def __init__(
        self,
        identity: ControllerIdentity,
        store: MetadataStore,
        calls: ControlCalls,
        clock: Clock,
        entropy: Entropy,
        config: ControllerConfig | None = None,
        timings: ControllerTimings | None = None,
    ) -> None:
        self._identity = identity
        self._timings = timings or ControllerTimings()
        self._store = store
        self._calls = calls
        self._clock = clock
        self._entropy = entropy
        self._config = config or ControllerConfig()
        self._admin = AdminExecutor(identity.settings)
        self._tokens = TokenExecutor(clock)
        self._controller_loop: ControllerLoop | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._leading: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._unclean_before = 0
        """Unclean elections in this broker's earlier controller epochs."""

    @property
    def is_active(self) -> bool:
        """True while this broker is the controller and its state is loaded."""
        return self._controller_loop is not None and self._controller_loop.machine is not None

    @property
    def controller_epoch(self) -> int:
        """The controller epoch that this broker won; -1 on standby."""
        return self._controller_loop.won.controller_epoch if self._controller_loop else -1

    @property
    def offline_partitions(self) -> int:
        """Number of partitions of the cluster without a leader; 0 on standby."""
        state = self._state
        return 0 if state is None else len(state.leaderless)

    @property
    def unclean_elections_total(self) -> int:
        """Number of unclean elections that this broker has made as controller."""
        state = self._state
        return self._unclean_before + (0 if state is None else state.unclean_elections)

    @property
    def _state(self) -> ControllerState | None:
        machine = None if self._controller_loop is None else self._controller_loop.machine
        return None if machine is None else machine.state

    @property
    def controller_loop(self) -> ControllerLoop | None:
        """The running controller loop; None on standby."""
        return self._controller_loop

    def reconfigure(self, config: ControllerConfig) -> None:
        """Use changed settings from the next decision on."""
        self._config = config
        if self._controller_loop is not None:
            self._controller_loop.reconfigure(config)

    async def start(self) -> None:
        """Start to take part in elections. The broker must be registered."""
        self._unwatch = self._store.watch(znodes.CONTROLLER, lambda _path: self._changed.set())
        self._store.on_session(self._session_changed)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="controller")

    async def stop(self) -> None:
        """Stop, and resign if this broker is the controller: another one is elected at once."""
        self._is_stopped = True
        if self._task is None:
            return
        self._unwatch()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        try:
            async with asyncio.timeout(self._timings.resign_timeout_s):
                await controller_election.resign(self._store)
        except TimeoutError:
            logger.warning(
                "the metadata store does not answer: if this broker holds /controller, the node"
                " goes when the session ends"
            )

    def handlers(self) -> dict[type[Control], ControlHandler]:
        """Handlers of the control requests that go to the controller."""
        return {
            AlterPartitionRequest: cast(ControlHandler, self._alter_partition),
            AssignReplicasToDirsRequest: cast(ControlHandler, self._assign_replica_to_dir),
            ControlledShutdownRequest: cast(ControlHandler, self._controlled_shutdown),
            AllocateProducerIdsRequest: cast(ControlHandler, self._allocate_producer_ids),
            ForwardRequest: cast(ControlHandler, self._forward),
        }

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED and self._leading is not None:
            self._leading.cancel()
        self._changed.set()

    async def _run(self) -> None:
        last_error = ""
        while True:
            self._changed.clear()
            try:
                won = await self._elect()
            except (StoreError, znodes.ZnodeError) as e:
                if last_error != (last_error := repr(e)):  # log each error once
                    logger.error("the election failed, trying again: %s", last_error)
                await asyncio.sleep(RETRY_DELAY_S)
                continue
            last_error = ""
            if won is None:
                await self._changed.wait()
                continue
            await self._lead(won)

    async def _elect(self) -> controller_election.WonElection | None:
        identity = self._identity
        return await controller_election.elect(
            self._store,
            identity.broker_id,
            identity.control_address,
            self._clock,
            identity.cluster_id,
        )

    async def _lead(self, won: controller_election.WonElection) -> None:
        identity = self._identity
        self._controller_loop = ControllerLoop(
            identity.broker_id,
            identity.cluster_id,
            won,
            self._store,
            self._calls,
            self._clock,
            self._entropy,
            self._config,
            self._timings,
        )
        self._leading = asyncio.get_running_loop().create_task(
            self._controller_loop.run(), name="controller-loop"
        )
        try:
            await asyncio.wait([self._leading])
        finally:
            # The loop still runs here when the whole service is being stopped.
            self._leading.cancel()
            await asyncio.gather(self._leading, return_exceptions=True)
            self._unclean_before = self.unclean_elections_total
            self._controller_loop = None
        self._log_end(self._leading)
        self._leading = None
        if not self._is_stopped:
            await controller_election.resign(self._store)
            await asyncio.sleep(self._entropy.uniform(0, RETRY_DELAY_S))

    def _log_end(self, leading: asyncio.Task[None]) -> None:
        if leading.cancelled():
            logger.warning("the session expired: this broker is no longer the controller")
            return
        error = leading.exception()
        if isinstance(error, HeadwaterError):
            logger.warning("this broker resigns as controller: %s", error)
        else:
            logger.error("the controller failed", exc_info=error)

    def _active(self) -> ControllerLoop:
        if self._controller_loop is None or self._controller_loop.machine is None:
            text = f"broker {self._identity.broker_id} is not the controller"
            raise KafkaError(ErrorCode.NOT_CONTROLLER, text)
        return self._controller_loop

    async def _alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionReply:
        try:
            reply = await self._active().ask(lambda token: AlterPartition(token, request))
        except KafkaError as e:
            return AlterPartitionReply(error_code=e.code)
        return cast(AlterPartitionReply, reply)

    async def _assign_replica_to_dir(
        self, request: AssignReplicasToDirsRequest
    ) -> AssignReplicasToDirsReply:
        try:
            reply = await self._active().ask(lambda token: AssignReplicaToDir(token, request))
        except KafkaError as e:
            return AssignReplicasToDirsReply(error_code=e.code)
        return cast(AssignReplicasToDirsReply, reply)

    async def _controlled_shutdown(
        self, request: ControlledShutdownRequest
    ) -> ControlledShutdownReply:
        try:
            self._active().mark_shutting_down(request.broker_id, request.broker_epoch)
            await asyncio.sleep(SHUTDOWN_GATHER_S)
            reply = await self._active().ask(
                lambda token: ControlledShutdown(token, request.broker_id, request.broker_epoch)
            )
        except KafkaError as e:
            return ControlledShutdownReply(error_code=e.code, remaining=0)
        return cast(ControlledShutdownReply, reply)

    async def _allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> AllocateProducerIdsReply:
        try:
            reply = await self._active().ask(
                lambda token: AllocateProducerIds(token, request.broker_id, request.broker_epoch)
            )
        except KafkaError as e:
            return AllocateProducerIdsReply(error_code=e.code)
        return cast(AllocateProducerIdsReply, reply)

    async def _forward(self, request: ForwardRequest) -> ForwardReply:
        try:
            executor = self._tokens if request.forwarded_key in TOKEN_KEYS else self._admin
            body = await executor.execute(self._active(), request)
        except KafkaError as e:
            return ForwardReply(error_code=e.code, body=b"")
        return ForwardReply(error_code=ErrorCode.NONE, body=body)
