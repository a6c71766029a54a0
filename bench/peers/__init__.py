"""The caches that are measured. Each is a process of its own that receives orders: see `asking`.

Each is written as in its own documentation.
"""
