"""Pictures of a city and its days."""
