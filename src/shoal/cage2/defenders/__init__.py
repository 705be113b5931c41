"""Scripted defenders and how they are played."""
