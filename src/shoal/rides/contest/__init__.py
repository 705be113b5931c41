"""Policies on the same held-out days, and the tables and pages of it."""
