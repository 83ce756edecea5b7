"""What a person types: ``muster COMMAND``."""
