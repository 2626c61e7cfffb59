"""examples/serve/ray_serve.py, with stand-ins for Ray: what is tested is its use of this package."""

import asyncio
import importlib.util
import json
import pathlib
import sys
import types

import pytest
from conftest import ROOT, RUNS


@pytest.fixture
def ray_serve(monkeypatch):
    """The example's module; Ray's decorator leaves the class as it is, an answer is its status and content."""

    def stand_in(name, **members):
        module = types.ModuleType(name)
        module.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    stand_in("ray", serve=stand_in("ray.serve", deployment=lambda **options: lambda kind: kind))
    stand_in("starlette")
    stand_in("starlette.requests", Request=object)
    stand_in("starlette.responses", JSONResponse=lambda content, status_code=200: (status_code, content))
    monkeypatch.delenv("MODEL", raising=False)
    spec = importlib.util.spec_from_file_location("ray_serve", pathlib.Path(ROOT) / "examples/serve/ray_serve.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Http:
    def __init__(self, body):
        self.body = body

    async def json(self):
        return json.loads(self.body)


def test_any_replica_continues_a_session(ray_serve):
    one, other = ray_serve.Texts(RUNS / "text"), ray_serve.Texts(RUNS / "text")

    def ask(replica, **request):
        return asyncio.run(replica(Http(json.dumps(request))))

    status, whole = ask(one, prompt="the", max_tokens=30, seed=3)
    assert status == 200 and whole["text"]
    first = ask(one, prompt="the", max_tokens=10, seed=3)[1]
    second = ask(other, session=first["session"], max_tokens=20)[1]
    assert first["text"] + second["text"] == whole["text"]
    for wrong in ({"session": "no session"}, {"session": "AAAA"}, {"prompt": 3}, {"prompt": "the", "temperature": -1},
                  {"prompt": "the", "max_tokens": "many"}):
        status, answer = ask(one, **wrong)
        assert status == 400 and answer["error"]["message"], wrong
    assert asyncio.run(one(Http("[]")))[0] == 400 and asyncio.run(one(Http("{")))[0] == 400
