"""CAGE Challenge 2, Blue's side: a compiled simulator exact to CybORG 2.1 (docs/cage2.md)."""
