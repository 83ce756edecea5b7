"""A real cluster behind the gateway: each broker at a port of ours, data passed on as bytes, groups kept here."""
