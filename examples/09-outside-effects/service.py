"""A service outside the cluster: it keeps databases in memory, under the names that its clients choose."""

import logging
import sys

from aiohttp import web


class Service:
    def __init__(self):
        self.databases = {}

    async def put(self, request):
        self.databases[request.match_info["name"]] = await request.json()
        return web.json_response({})

    async def delete(self, request):
        if self.databases.pop(request.match_info["name"], None) is None:
            raise web.HTTPNotFound
        return web.json_response({})

    def app(self, **options):
        app = web.Application(**options)
        app.router.add_put("/databases/{name}", self.put)
        app.router.add_delete("/databases/{name}", self.delete)
        return app


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)  # It logs each request.
    web.run_app(Service().app(), host="localhost", port=int(sys.argv[1]))
