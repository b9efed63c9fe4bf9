"""The SDK for asyncio programs: the blocking clients' engine, awaited on the caller's loop.

from headwater.aio import AsyncAdmin, AsyncConsumer, AsyncProducer
"""

from __future__ import annotations

from headwater.client.aio.admin import AsyncAdmin
from headwater.client.aio.consumer import AsyncConsumer
from headwater.client.aio.deliveries import Delivery, TableDelivery
from headwater.client.aio.producer import AsyncProducer

__all__ = ["AsyncAdmin", "AsyncConsumer", "AsyncProducer", "Delivery", "TableDelivery"]
