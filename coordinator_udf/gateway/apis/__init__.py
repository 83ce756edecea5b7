"""What the gateway itself answers, and what it says when the coordinator doesn't answer."""
