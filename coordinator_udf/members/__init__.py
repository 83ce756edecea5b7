"""The member's side of both group protocols: state machines without socket, clock, thread or randomness."""
