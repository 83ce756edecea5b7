"""The kinds of historical logs, a reader each."""
