"""The broker's Python runtime: event loop, loop lag, watchdog, deferred fsync, process settings."""
