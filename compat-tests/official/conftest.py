"""The one fixture that the client's source distribution leaves out: a client of the broker under test."""

import os

import pytest_asyncio
from queen import Queen


@pytest_asyncio.fixture
async def client():
    queen = Queen(os.environ["QUEEN_SERVER_URL"])
    yield queen
    await queen.close()
