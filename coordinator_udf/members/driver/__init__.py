"""Runs a member machine in real time: over sockets to brokers, or over whatever else carries requests and answers."""
