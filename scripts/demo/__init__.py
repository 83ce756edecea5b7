"""What scripts/run shows: real consumers, and a real broker's traffic answered again."""
