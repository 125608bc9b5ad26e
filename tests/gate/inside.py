"""Requests to a gate's application in this process, without a server, a database and threads of its own."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import httpx2

from transcendent.gate.app import create_app
from transcendent.gate.settings import GateSettings


def application(state=None, **settings):
    """Return an application that has not started; ``state`` is what it would have made by then."""
    made = create_app(GateSettings(database="postgresql://nobody@127.0.0.1/none", **settings), None)
    for name, value in ({"tokens": None, "sessions": None} | (state or {})).items():
        setattr(made.app.state, name, value)
    return made


def ask(app, method, path, **given):
    """Return the application's answer to a request."""

    async def sent():
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8040") as http:
            return await http.request(method, path, **given)

    with ThreadPoolExecutor(1) as pool:  # tests with a browser run a loop in this thread
        return pool.submit(asyncio.run, sent()).result()
