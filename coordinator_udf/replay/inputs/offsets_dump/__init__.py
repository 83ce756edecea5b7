"""Dumps of ``__consumer_offsets`` as text: what groups were, as far as compaction left it."""
