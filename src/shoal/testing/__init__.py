"""What a backend or an environment of your own can be tested with."""
