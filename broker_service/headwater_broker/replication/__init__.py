"""Leader, follower, ISR and high watermark."""
