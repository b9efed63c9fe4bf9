"""A cluster on this machine: ZooKeeper and brokers as supervised child processes."""
