"""The network-defence simulator: exactness, speed, scores."""
