"""Measures `mnemo serve`, and kills it at random moments.

usage: serve_bench.py MNEMO MODEL [--scale F] [PART...]
PART: streams, first-token, slow-clients, requests, kills, eviction; default: all. --scale: of the numbers of requests, clients,
kills and sessions (default 1). Exit status 1 and a message if a text or a position is not what it should be, or memory grows;
times are printed with their targets, since they depend on what else the machine does.
"""

import concurrent.futures
import http.client
import json
import random
import socket
import statistics
import sys
import tempfile
import threading
import time

arguments = sys.argv[1:]
SCALE = 1.0
if "--scale" in arguments:
    at = arguments.index("--scale")
    SCALE = float(arguments[at + 1])
    del arguments[at:at + 2]
sys.argv[1:] = arguments
from serve_check import Server, events  # noqa: E402  (reads MNEMO and MODEL from the command line)

PARTS = arguments[2:]


def scaled(number):
    return max(1, round(number * SCALE))


def say(text):
    print(text, flush=True)


def quantile(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


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


def post(server, body, path="/v1/completions"):
    connection = server.connect()
    connection.request("POST", path, json.dumps({"model": "m", "prompt": "line", **body}))
    return connection.getresponse()


def check_streams():
    """Tokens a second over HTTP against those of the engine's passes, Scheduler::tick(), in the same run."""
    server = Server("--no-access-log", "--max-tokens", "100000")
    for count in (1, 4, 16):
        tokens = scaled(2000)

        def one(seed):
            last = events(post(server, {"max_tokens": tokens, "seed": seed, "stream": True,
                                        "stream_options": {"include_usage": True}}))[-1]
            return last["usage"]["completion_tokens"]

        passes, begin = server.metric("mnemo_pass_seconds_sum"), time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            written = sum(pool.map(one, range(count)))
        seconds = time.monotonic() - begin
        share = (server.metric("mnemo_pass_seconds_sum") - passes) / seconds
        say(f"streams: {count:2}: {written / seconds:8.0f} tokens/s, {share:.3f} of the scheduler's (target 0.95)")
    server.stop()


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
    say(f"first token: {medians[1] / medians[0]:.2f} times as long (target 1.2)")
    server.stop()


def check_slow_clients():
    """Some send a request byte by byte, some never read their answer; the others do not notice."""
    silent = scaled(100)
    server = Server("--no-access-log", "--max-tokens", "1000000", "--max-queue", str(silent + 64))

    def healthy():
        callers, seconds = [Caller(server) for _ in range(4)], {"health": [], "one token": []}
        for i in range(400):
            for name, ask in (("health", lambda c: c.ask("GET", "/health")),
                              ("one token", lambda c: c.ask("POST", "/v1/completions", {"model": "m", "prompt": "line", "max_tokens": 1}))):
                begin = time.perf_counter()
                ask(callers[i % 4])
                seconds[name].append(time.perf_counter() - begin)
        return {name: 1e3 * quantile(values, 0.99) for name, values in seconds.items()}

    idle, memory = healthy(), server.metric("process_resident_memory_bytes")
    connect = lambda: socket.create_connection(("127.0.0.1", server.port))
    slow = [connect() for _ in range(min(scaled(1000), 900))]  # of 1,024 connections
    stop = threading.Event()

    def drip():
        while not stop.wait(0.5):
            for client in slow:
                try:
                    client.send(b"G")
                except OSError:
                    pass  # the deadline for a header has closed it

    dripping = threading.Thread(target=drip)
    dripping.start()
    readers = []
    body = json.dumps({"model": "m", "prompt": "line", "max_tokens": 200_000, "stream": True})  # 30 MB
    for _ in range(silent):
        client = connect()
        client.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        readers.append(client)
    time.sleep(2)
    busy, grown = healthy(), server.metric("process_resident_memory_bytes") - memory
    stop.set()
    dripping.join()
    for client in slow + readers:
        client.close()
    for name, value in idle.items():
        say(f"slow clients: p99 of {name}: {value:.2f} ms idle, {busy[name]:.2f} ms beside {len(slow)} slow and {silent} silent"
            f" (target {2 * value + 1:.2f})")
    say(f"slow clients: {grown / 2**20:.0f} MiB more memory (target 64)")
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
    assert grown <= 0.01, memory
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
            f" {1e3 * (cold - warm):.2f} ms (target {5 + size / 1e6:.2f})")
        server.stop()


if __name__ == "__main__":
    for name, check in (("streams", check_streams), ("first-token", check_first_token), ("slow-clients", check_slow_clients),
                        ("requests", check_requests), ("kills", check_kills), ("eviction", check_eviction)):
        if not PARTS or name in PARTS:
            check()
