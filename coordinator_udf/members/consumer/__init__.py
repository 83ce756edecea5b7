"""A member of the consumer protocol (KIP-848), as Kafka's AsyncKafkaConsumer is one; no socket, clock or thread."""
