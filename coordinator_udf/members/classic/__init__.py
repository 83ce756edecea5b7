"""A member of the classic protocol, as Kafka's ClassicKafkaConsumer is one.

Each file is one subject of AbstractCoordinator and ConsumerCoordinator, under the names that these use. What blocks in
Java (a callback, commitSync, close, a leader that waits for metadata) is a generator here that waits for a later input.
"""
