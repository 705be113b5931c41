"""Did it help? Arms trained with the same seeds, and a verdict in words for each claim."""
