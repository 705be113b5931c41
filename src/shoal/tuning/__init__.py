"""Settings found by search: `shoal tune ID --search`."""
