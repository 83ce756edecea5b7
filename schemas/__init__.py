"""The shape of every stream and table: StructTypes, and nothing of ours imported."""
