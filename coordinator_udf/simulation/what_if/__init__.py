"""What a group would have done under other settings: its members' behaviour, taken from a log, in a world."""
