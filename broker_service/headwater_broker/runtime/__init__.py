"""The broker's process: event loop, loop lag, watchdog, deferred fsync, levels of loggers."""
