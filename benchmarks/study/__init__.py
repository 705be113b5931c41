"""What the number of environments is worth: the study behind docs/comparing.md."""
