"""Dial-a-ride: negotiate time windows with riders, over a batched routing oracle (docs/rides.md)."""
