"""Measures `mnemo serve`, and kills it at random moments.

usage: serve_bench.py MNEMO MODEL [--scale F] [PART...]
PART: first-token, requests, kills, eviction; default: all. --scale: of the numbers of requests, kills and sessions (default 1). Exit status 1 and a message if a text or a position is not what it should be, or memory grows;
times are printed with their targets, since they depend on what else the machine does.
"""

import concurrent.futures
import http.client
import json
import pathlib
import random
import statistics
import sys
import tempfile
import threading
import time
import tomllib

arguments = sys.argv[1:]
SCALE = 1.0
if "--scale" in arguments:
    at = arguments.index("--scale")
    SCALE = float(arguments[at + 1])
    del arguments[at:at + 2]
sys.argv[1:] = arguments
from serve_check import Server  # noqa: E402  (reads MNEMO and MODEL from the command line)

PARTS = arguments[2:]
BARS = tomllib.loads((pathlib.Path(__file__).parents[2] / "bench/bars.toml").read_text())["serving"]


def scaled(number):
    return max(1, round(number * SCALE))


def say(text):
    print(text, flush=True)


class Caller:
    """A connection that stays open."""

    def __init__(self, server):
        self.connection = server.connect()

    def ask(self, method, path, body=None, headers={}):
        self.connection.request(method, path, body if body is None or isinstance(body, bytes) else json.dumps(body), headers)
        answer = self.connection.getresponse()
        content = answer.read()
        parsed = json.loads(content) if answer.headers["Content-Type"] == "application/json" else content
        assert answer.status in (200, 201), (path, answer.status, parsed)
        return parsed


def check_first_token():
    server = Server("--no-access-log")
    medians = []
    for length in (100, 100_000):
        caller = Caller(server)
        session = caller.ask("POST", "/v1/sessions", {})["id"]
        for part in range(0, length, 10_000):
            text = ("line of a text " * 700)[:min(10_000, length - part)]
            caller.ask("POST", f"/v1/sessions/{session}/feed", {"prompt": text})
        seconds = []
        for _ in range(scaled(200)):
            begin = time.perf_counter()
            caller.ask("POST", "/v1/completions", {"model": "m", "session": session, "prompt": "", "max_tokens": 1})
            seconds.append(time.perf_counter() - begin)
        medians.append(statistics.median(seconds))
        facts = caller.ask("GET", f"/v1/sessions/{session}")
        say(f"first token after {facts['position']} tokens in {facts['bytes']} bytes: {1e3 * medians[-1]:.2f} ms")
    say(f"first token: {medians[1] / medians[0]:.2f} times as long (target {BARS['first_token']})")
    server.stop()


def check_requests():
    server = Server("--no-access-log")
    count, memory = scaled(100_000), {}

    def some(requests):
        caller = Caller(server)
        for i in range(requests):
            caller.ask("POST", "/v1/completions", {"model": "m", "prompt": "line", "max_tokens": 4, "seed": i})

    for part in range(10):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(some, [max(1, count // 40)] * 4))
        memory[part] = server.metric("process_resident_memory_bytes")
    grown = memory[9] / memory[1] - 1
    say(f"requests: {count}: memory {memory[1] / 2**20:.1f} to {memory[9] / 2**20:.1f} MiB, {100 * grown:+.2f} %")
    assert grown <= BARS["growth"], memory
    server.stop()


def check_kills():
    """kill -9 at random moments, with --durable: every position that was acknowledged is there, and no half file."""
    numbers, acknowledged = random.Random(1), {}
    with tempfile.TemporaryDirectory() as folder:
        for kill in range(scaled(50)):
            server = Server("--no-access-log", "--session-dir", folder, "--durable")
            assert "left alone" not in server.log(), server.log()
            caller = Caller(server)
            for session, (position, unsure) in list(acknowledged.items()):
                found = caller.ask("GET", f"/v1/sessions/{session}")["position"]
                assert position <= found <= position + unsure, (kill, session, position, unsure, found)
                acknowledged[session] = (found, 0)
            killer = threading.Timer(numbers.uniform(0.01, 0.5), server.process.kill)
            killer.start()

            def write(number):
                caller, session = Caller(server), None
                try:
                    while True:
                        if session is None or numbers.random() < 0.1:
                            session = caller.ask("POST", "/v1/sessions", {})["id"]
                            acknowledged[session] = (0, 0)
                        position = acknowledged[session][0]
                        acknowledged[session] = (position, 12)  # four tokens read and eight written
                        answer = caller.ask("POST", "/v1/completions", {"model": "m", "session": session, "prompt": "line", "max_tokens": 8})
                        used = answer["usage"]
                        acknowledged[session] = (position + used["prompt_tokens"] + used["completion_tokens"], 0)
                except (OSError, http.client.HTTPException):
                    return

            acknowledged = dict(random.Random(kill).sample(sorted(acknowledged.items()), min(40, len(acknowledged))))
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                list(pool.map(write, range(4)))
            killer.join()
            server.process.wait()
    say(f"kills: {kill + 1} at random moments, nothing lost; {len(acknowledged)} sessions looked at in the last")


def check_eviction():
    """Sessions of which one in a hundred fits in memory."""
    count, texts, seconds = scaled(10_000), {}, []
    with tempfile.TemporaryDirectory() as folder:
        probe = Server("--no-access-log")
        caller = Caller(probe)
        expected = {}
        for seed in range(10):
            session = caller.ask("POST", "/v1/sessions", {"sampling": {"seed": seed, "temperature": 0.8}})["id"]
            expected[seed] = [caller.ask("POST", "/v1/completions", {"model": "m", "session": session, "prompt": prompt, "max_tokens": 8})
                              ["choices"][0]["text"] for prompt in ("line", "")]
            size = caller.ask("GET", f"/v1/sessions/{session}")["bytes"]
        probe.stop()
        memory = max(1, round(count / 100 * size / 2**20))
        server = Server("--no-access-log", "--session-dir", folder, "--session-memory", str(memory))
        caller, sessions = Caller(server), []

        def step(session, seed, number):
            begin = time.perf_counter()
            text = caller.ask("POST", "/v1/completions", {"model": "m", "session": session, "prompt": ("line", "")[number], "max_tokens": 8})
            seconds.append(time.perf_counter() - begin)
            assert text["choices"][0]["text"] == expected[seed][number], (session, seed, number, text)

        for number in range(count):
            sessions.append((caller.ask("POST", "/v1/sessions", {"sampling": {"seed": number % 10, "temperature": 0.8}})["id"], number % 10))
            step(*sessions[-1], 0)
        warm = statistics.median(seconds)
        seconds.clear()
        held = server.metric("mnemo_session_bytes")
        assert held <= memory << 20, (held, memory)
        random.Random(1).shuffle(sessions)
        for session, seed in sessions:
            step(session, seed, 1)
        cold = statistics.median(seconds)
        say(f"eviction: {count} sessions of {size} bytes, {memory} MiB in memory, as without eviction; reload takes"
            f" {1e3 * (cold - warm):.2f} ms (target {BARS['reload_ms'] + size / 1e6:.2f})")
        server.stop()


if __name__ == "__main__":
    for name, check in (("first-token", check_first_token), ("requests", check_requests), ("kills", check_kills),
                        ("eviction", check_eviction)):
        if not PARTS or name in PARTS:
            check()
