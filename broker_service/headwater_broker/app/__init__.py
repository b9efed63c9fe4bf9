"""The broker process: configuration, wiring, start and stop (Kafka's `BrokerServer`)."""
