"""The controller: pure decisions, one event queue."""
