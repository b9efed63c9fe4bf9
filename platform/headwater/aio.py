"""The SDK for asyncio programs: the blocking clients' engine, awaited on the caller's loop.

from headwater.aio import AsyncAdmin, AsyncConsumer, AsyncProducer, AsyncShareConsumer
"""

from __future__ import annotations

from headwater.client.aio.admin import AsyncAdmin
from headwater.client.aio.consumer import AsyncConsumer
from headwater.client.aio.deliveries import Delivery, TableDelivery
from headwater.client.aio.producer import AsyncProducer
from headwater.client.aio.share_consumer import AsyncShareConsumer
from headwater.client.aio.share_typed_reader import AsyncShareTypedReader

__all__ = [
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncShareConsumer",
    "AsyncShareTypedReader",
    "Delivery",
    "TableDelivery",
]
