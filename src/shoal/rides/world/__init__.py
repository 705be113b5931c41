"""A city, its riders and their days. Knows nothing of training."""
