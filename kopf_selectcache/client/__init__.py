"""Requests to the API server. The only folder that imports aiohttp, besides the embedded server."""
