"""The ride negotiator: routing, speed, what training gains."""
