"""The runtime of coordinators: command to records and reply."""
