"""Consumer lag: samples, their trend, and why a group lags."""
