"""Kafka's vocabulary: errors, requests, responses, records. Data, no behaviour."""
