"""The controller's reads and writes in ZooKeeper."""
