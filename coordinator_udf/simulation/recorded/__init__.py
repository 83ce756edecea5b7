"""Worlds that take their applications' calls and their network's delays from recordings of Kafka's own."""
