"""The client SDK: producer, consumer, admin client, and the connections below them."""
