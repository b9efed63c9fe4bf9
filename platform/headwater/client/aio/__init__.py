"""The asyncio clients: the engine of the blocking ones, awaited on the caller's loop."""
