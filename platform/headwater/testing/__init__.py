"""Doubles of the ports, with faults."""
