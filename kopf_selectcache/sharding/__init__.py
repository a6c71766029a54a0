"""Sharding: several replicas of an operator divide the ranges of keys among themselves."""
