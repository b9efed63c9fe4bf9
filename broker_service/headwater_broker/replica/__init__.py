"""Replicas of partitions: leaders, followers, ISR and high watermark."""
