"""Sockets: connections, their limits, and the way of a request to the log and of its answer back."""
