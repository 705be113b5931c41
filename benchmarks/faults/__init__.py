"""What breaks on purpose, and who survives it."""
