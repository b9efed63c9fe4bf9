"""Serializers with the schemas of a registry, framed as Confluent's."""
