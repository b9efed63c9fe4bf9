"""Processes of the console that read what strangers wrote: bounded, and with no connection."""
