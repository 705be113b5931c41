"""The small environments that ship."""
