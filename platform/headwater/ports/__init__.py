"""Ports: protocols for everything outside the process, such as files, network and ZooKeeper."""
