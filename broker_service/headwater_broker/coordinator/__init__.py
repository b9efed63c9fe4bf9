"""Coordinators: the shared runtime, consumer groups, transactions."""
