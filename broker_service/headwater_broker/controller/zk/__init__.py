"""What the controller reads from and writes to ZooKeeper."""
