"""Shared by the resources: the store, the schema languages, the rights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headwater_gateway.registry.formats.catalog import FormatCatalog
from headwater_gateway.registry.rights import Rights
from headwater_gateway.registry.store import RegistryStore


@dataclass(frozen=True, slots=True)
class RegistryParts:
    """What the resources use."""

    store: RegistryStore
    formats: FormatCatalog
    rights: Rights
    cluster_id: Callable[[], str | None]
    version: str
