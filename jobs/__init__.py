"""Entry points: each parses its arguments, builds its session, wires the rooms and starts. No logic."""
