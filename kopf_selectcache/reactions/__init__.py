"""Reactions: a change of a cached object runs a function for a key."""
