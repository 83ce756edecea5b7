"""Kafka's ``__consumer_offsets``: its bytes, Kafka's JSON for them, and the rows of the table consumer_offsets."""
