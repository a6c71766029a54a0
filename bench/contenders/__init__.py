"""Three ways to hold the pods of a cluster that a label selects. Each is a process that answers with its
contents.

Each is written as in its own documentation. They share only the protocol of `asking`.
"""
