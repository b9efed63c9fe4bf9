"""Admin requests of several handlers: forwarding to the controller, changes of configs."""
