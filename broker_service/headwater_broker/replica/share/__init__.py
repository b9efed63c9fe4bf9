"""Share partitions on their leader (KIP-932): Kafka's SharePartition and its manager."""
