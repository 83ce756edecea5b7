"""The state machines of groups. Pure Python: no Spark, no clock, no randomness, no I/O."""
