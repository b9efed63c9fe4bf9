"""The gateway: schema registry, REST proxy and console, over HTTP beside the brokers."""
