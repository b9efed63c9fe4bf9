"""The controller's decisions, a module per kind of event. Pure."""
