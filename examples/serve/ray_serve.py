"""A model of texts behind Ray Serve, with the Python package. A session is a few kilobytes, so it travels with the
request, and any replica continues it.

    pip install "ray[serve]"
    cd examples/serve && MODEL=/path/to/runs/mine serve run ray_serve:app
    curl localhost:8000 -d '{"prompt": "Once", "max_tokens": 50}'

The answer has `text` and `session`; a request with that `session` continues from there.
"""

import asyncio
import base64
import os

import mnemo
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse

MOST_TOKENS = 4096


@serve.deployment(num_replicas=2, max_ongoing_requests=4, ray_actor_options={"num_cpus": 1})
class Texts:
    def __init__(self, folder: str) -> None:
        self.model = mnemo.load(folder)

    def write(self, request: dict) -> dict:
        """Reads the prompt and writes on, from the session or from the beginning."""
        text = self.model.text(temperature=float(request.get("temperature", 0.8)), seed=int(request.get("seed", 0)))
        if request.get("session"):  # which has its own sampling
            text = text.from_bytes(base64.b64decode(request["session"], validate=True))
        if request.get("prompt"):
            text.feed(request["prompt"])
        written = text.generate(min(int(request.get("max_tokens", 16)), MOST_TOKENS))
        return {"text": written, "finish_reason": text.finish_reason, "session": base64.b64encode(text.to_bytes()).decode()}

    async def __call__(self, http: Request) -> JSONResponse:
        try:
            return JSONResponse(await asyncio.to_thread(self.write, await http.json()))
        except (ValueError, TypeError, AttributeError) as error:  # mnemo.InputError is a ValueError
            return JSONResponse({"error": {"message": str(error)}}, status_code=400)


app = Texts.bind(os.environ["MODEL"]) if "MODEL" in os.environ else None
