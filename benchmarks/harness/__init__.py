"""What all groups share: contestants that take turns, rows, results on disk."""
