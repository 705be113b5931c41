"""The booking desk: what to offer a rider now."""
