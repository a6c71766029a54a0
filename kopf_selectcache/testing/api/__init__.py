"""The embedded Kubernetes API without its sockets: a request in, an answer out. Pure: no I/O, no clock, no
asyncio.
"""
