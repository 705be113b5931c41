"""CAGE Challenge 2 as scalar functions. Knows nothing of training."""
