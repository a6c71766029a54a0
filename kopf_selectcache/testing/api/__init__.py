"""The embedded Kubernetes API without its sockets: a request in, a response out. Pure: no I/O, no clock, no
asyncio.
"""
