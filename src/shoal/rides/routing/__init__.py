"""Routing: one problem definition, one independent checker, several oracles behind one batched interface."""
