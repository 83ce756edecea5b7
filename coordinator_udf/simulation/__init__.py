"""Whole groups in one virtual time: members, network, topics and a coordinator. Nothing here reads a clock."""
