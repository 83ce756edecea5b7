"""Benchmarks of the coordinator, in ratios that one can believe. ``scripts/bench`` runs them."""
