"""The caches that are measured beside each other, each a process of its own that is told what to do: see
`asking`.

Each is written as its own documentation shows it.
"""
