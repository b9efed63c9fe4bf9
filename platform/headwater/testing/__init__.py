"""Test doubles of the ports, with faults on demand."""
