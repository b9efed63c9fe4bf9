"""What handlers may use: one frozen value, wired by `headwater_broker.node`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.ports.authorizer import Authorizer, Operation, Principal, ResourceType
from headwater.ports.remote_log import RemoteLog
from headwater_broker.api.fetch_sessions import FetchSessionCache
from headwater_broker.api.limits import ApiConfig
from headwater_broker.api.meters import Meters
from headwater_broker.api.warming import Warmer
from headwater_broker.waiting.purgatory import Purgatory

if TYPE_CHECKING:
    from headwater_broker.cluster.controller_calls import ControllerCalls
    from headwater_broker.cluster.view import ClusterView
    from headwater_broker.replication.replica_manager import ReplicaManager


@dataclass(frozen=True, slots=True)
class Purgatories:
    """Parked requests by what they wait for."""

    produce: Purgatory
    """acks=all: the high watermark."""
    fetch: Purgatory
    """min_bytes: appends, the high watermark, the last stable offset."""


@dataclass(frozen=True, slots=True)
class Services:
    """Everything a handler may touch. All of it belongs to the broker's one loop."""

    broker_id: int
    cluster_id: str
    clock: Clock
    entropy: Entropy
    replicas: ReplicaManager
    view: ClusterView
    controller: ControllerCalls
    groups: Any
    producer_ids: Any
    authorizer: Authorizer
    purgatories: Purgatories
    sessions: FetchSessionCache
    meters: Meters
    warmer: Warmer
    remote_log: RemoteLog | None
    config: ApiConfig


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One request's surroundings: who asks, over which listener, in which version."""

    broker: Services
    principal: Principal
    client_id: str | None
    api_version: int
    correlation_id: int
    listener: str
    client_host: str = ""

    @property
    def services(self) -> Services:
        """The same as `broker`."""
        return self.broker

    def allowed(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        """Ask the authorizer for this principal."""
        return self.broker.authorizer.authorize(self.principal, operation, resource, name)


ZERO_UUID = UUID(int=0)
