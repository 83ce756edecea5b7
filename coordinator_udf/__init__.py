"""Kafka's group coordinator on Spark and Delta Lake."""

import sys
from importlib import import_module

if "hypothesis" not in sys.modules:
    # Where Hypothesis is installed, kio loads it to say how examples of its types are made, and Hypothesis makes a
    # directory where the command runs.
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    import_module("kio.static.primitive")
    del sys.modules["hypothesis"]
