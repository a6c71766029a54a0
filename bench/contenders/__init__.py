"""Three ways to hold the pods of a cluster that a label selects, each a process that is asked what it holds.

Each is written as its own documentation shows it. All they share is how they are asked: see `asking`.
"""
