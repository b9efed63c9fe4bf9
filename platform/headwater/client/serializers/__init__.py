"""Serializers: values to the bytes of a record and back (Kafka's Serializer and Deserializer)."""
