"""Recordings of Kafka's own group members, fed to ours: the same inputs, and every output compared."""
