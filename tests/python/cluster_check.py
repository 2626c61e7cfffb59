"""Three servers behind haproxy with their sessions in Redis, while servers and Redis are killed and started again.

usage: cluster_check.py MNEMO MODEL HAPROXY_CFG [REQUESTS]     REQUESTS: default 2000
Exit status 1 and a message if an acknowledged text is not what one server alone writes, or a request is lost or read twice.
"""

import collections
import concurrent.futures
import http.client
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

MNEMO, MODEL, CONFIGURATION = sys.argv[1:4]
REQUESTS = int(sys.argv[4]) if len(sys.argv) > 4 else 2000
CLIENTS, STEPS, SEEDS, TOKENS = 32, 8, 8, 8
KILL_EVERY = 5  # seconds
AGAIN = (409, 429, 502, 503, 504)


def free_ports(count):
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def wait_until(works, seconds=60):
    deadline = time.monotonic() + seconds
    while not works():
        assert time.monotonic() < deadline, "nothing answers"
        time.sleep(0.02)


class Program:
    """A process that can be killed and started again."""

    def __init__(self, command, port, environment=None):
        self.command, self.port, self.environment = command, port, environment
        self.errors = tempfile.TemporaryFile("w+")
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=self.errors, env=self.environment)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def listens(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


class Server(Program):
    def __init__(self, *options):
        port, = free_ports(1)
        super().__init__([MNEMO, "serve", MODEL, "--port", str(port), "--name", "m", "--no-access-log", *options], port)

    def ready(self):
        """Starts it again if it has ended by itself, for want of Redis."""
        if self.process.poll() is not None:
            self.start()
        try:
            return ask(self.port, "GET", "/ready")[0] == 200
        except (OSError, http.client.HTTPException):
            return False


def ask(port, method, path, body=None, headers={}):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        content = answer.read()
        text = content.decode()
        return answer.status, json.loads(text) if text.startswith("{") else text, answer.headers
    finally:
        connection.close()


class Client:
    """Continues sessions step by step, and repeats what is not answered."""

    def __init__(self, port, affine=True, patient=True):
        self.port, self.affine, self.patient = port, affine, patient
        self.counts = collections.Counter()

    def ask(self, method, path, body=None, headers={}):
        for _ in range(2000):
            try:
                status, answer, found = ask(self.port, method, path, body, headers)
            except (OSError, http.client.HTTPException):
                status, answer, found = 0, "no answer", {}
            self.counts[status] += 1
            self.counts["replayed"] += found.get("X-Mnemo-Replayed") == "true"
            if status in (200, 201):
                return answer
            assert self.patient and (status == 0 or status in AGAIN), (method, path, status, answer)
            time.sleep(0.05)
        raise AssertionError((path, status, answer))

    def create(self, seed):
        return self.ask("POST", "/v1/sessions", {"sampling": {"temperature": 0.8, "seed": seed}})["id"]

    def step(self, session, step, position):
        body = {"model": "m", "session": session, "prompt": "line" if step % 4 == 0 else "", "max_tokens": TOKENS,
                "if_position": position}
        headers = {"Idempotency-Key": f"step {step}"}
        if self.affine:
            headers["X-Mnemo-Session"] = session
        return self.ask("POST", "/v1/completions", body, headers)

    def position(self, session):
        return self.ask("GET", f"/v1/sessions/{session}")["position"]


def expected_texts():
    """Texts and positions after each step, by seed, of one server without a store."""
    server = Server()
    wait_until(server.ready)
    client, texts = Client(server.port), {}
    for seed in range(SEEDS):
        session, position, texts[seed] = client.create(seed), 0, []
        for step in range(STEPS + 1):
            text = client.step(session, step, position)["choices"][0]["text"]
            position = client.position(session)
            texts[seed].append((text, position))
    server.kill()
    return texts


def work(port, expected, numbers, seconds, until, affine=True, patient=True):
    """Clients that write sessions until `until()`; the sessions with their seeds and steps, and what clients saw."""
    def one(number):
        client, sessions, random_numbers = Client(port, affine, patient), [], random.Random(number)
        while not until():
            seed = next(numbers) % SEEDS
            session, position, done = client.create(seed), 0, 0
            for step in range(STEPS):
                if until():
                    break
                time.sleep(random_numbers.uniform(0, 2 * seconds))
                text = client.step(session, step, position)["choices"][0]["text"]
                wanted, position = expected[seed][step]
                assert text == wanted, (seed, step, text, wanted)
                done = step + 1
            sessions.append((session, seed, done))
        return sessions, client.counts

    sessions, counts = [], collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        for found, seen in pool.map(one, range(CLIENTS)):
            sessions += found
            counts += seen
    return sessions, counts


def check_sessions(port, sessions, expected):
    """Each is where its last acknowledged step left it, and goes on as one that nothing has happened to."""
    client = Client(port)
    for session, seed, done in sessions:
        position = expected[seed][done - 1][1] if done else 0
        assert client.position(session) == position, (session, seed, done)
        assert client.step(session, done, position)["choices"][0]["text"] == expected[seed][done][0], (session, seed, done)


def check_expiry(server, redis_port):
    """Redis keeps a session until the time that its server has answered."""
    session = ask(server.port, "POST", "/v1/sessions", {"ttl": 20})[1]["id"]
    time.sleep(1.6)  # less than a tenth: this use needs no write
    expires = ask(server.port, "GET", f"/v1/sessions/{session}")[1]["expires_at"]
    with socket.create_connection(("127.0.0.1", redis_port)) as redis:
        redis.sendall(f"PTTL mnemo:session:{session}\r\n".encode())
        left = int(redis.recv(64)[1:]) / 1000
    assert time.time() + left >= expires, (left, expires - time.time())


def check_kills(port, servers, redis, expected):
    answered, numbers, stop = itertools.count(), itertools.count(), threading.Event()
    seen = 0

    def until():
        nonlocal seen
        seen = next(answered)
        return seen >= REQUESTS

    kills = []

    def killer():
        while not stop.wait(KILL_EVERY):
            if len(kills) == 3:
                redis.kill()
                stop.wait(1)
                redis.start()
                wait_until(redis.listens)
            victim = servers[len(kills) % len(servers)]
            victim.kill()
            victim.start()
            wait_until(victim.ready)
            kills.append(victim)

    thread = threading.Thread(target=killer)
    thread.start()
    begin = time.monotonic()
    try:
        sessions, counts = work(port, expected, numbers, 0.6, until)
    finally:
        stop.set()
        thread.join()
    check_sessions(port, sessions, expected)
    print(f"{counts[200] + counts[201]} requests in {time.monotonic() - begin:.0f} s, {len(kills)} servers killed"
          f"{', Redis too' if len(kills) > 3 else ''}: {len(sessions)} sessions as one server writes them;"
          f" answers {dict(sorted(counts.items(), key=str))}", flush=True)
    assert len(kills) >= 3 or REQUESTS < 2000


def check_two_at_once(servers, expected):
    """Two servers continue the same version of a session: one of them is refused."""
    client = Client(servers[0].port)
    session = client.create(0)
    statuses = collections.Counter()
    for step in range(STEPS):
        position = expected[0][step - 1][1] if step else 0
        body = {"model": "m", "session": session, "prompt": "line" if step % 4 == 0 else "", "max_tokens": TOKENS,
                "if_position": position}
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(lambda server: ask(server.port, "POST", "/v1/completions", body), servers[:2]))
        found = sorted(status for status, _, _ in answers)
        assert found in ([200, 409], [200, 412]), answers
        assert [body["choices"][0]["text"] for status, body, _ in answers if status == 200] == [expected[0][step][0]]
        statuses.update(found)
    print(f"two servers at once: {dict(sorted(statuses.items()))}", flush=True)


def check_rolling_restart(port, servers, expected):
    done = threading.Event()

    def restart():
        try:
            for server in servers:
                server.process.send_signal(signal.SIGTERM)
                assert server.process.wait(40) == 0
                server.start()
                wait_until(server.ready)
                time.sleep(1)  # until haproxy knows
        finally:
            done.set()

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        restarted = pool.submit(restart)
        sessions, counts = work(port, expected, itertools.count(), 0.1, done.is_set, patient=False)
        restarted.result()
    check_sessions(port, sessions, expected)
    print(f"rolling restart: {counts[200] + counts[201]} requests, none failed", flush=True)


def check_affinity(port, expected):
    seconds = {}
    for affine in (True, False):
        requests, begin = itertools.count(), time.monotonic()
        _, counts = work(port, expected, itertools.count(), 0, lambda: next(requests) >= 600, affine)
        seconds[affine] = (time.monotonic() - begin) / counts[200]
    print(f"without affinity a request takes {seconds[False] / seconds[True]:.2f} times as long as with it", flush=True)


def main():
    expected = expected_texts()
    folder = tempfile.TemporaryDirectory()
    gateway_port, redis_port = free_ports(2)
    programs = []
    try:
        redis = Program(["redis-server", "--port", str(redis_port), "--bind", "127.0.0.1", "--dir", folder.name, "--save", "",
                         "--appendonly", "yes", "--appendfsync", "always"], redis_port)
        programs.append(redis)
        wait_until(redis.listens)
        servers = [Server("--store", f"redis://127.0.0.1:{redis_port}") for _ in range(3)]
        programs += servers
        names = dict(zip(("MNEMO_ONE", "MNEMO_TWO", "MNEMO_THREE"), (f"127.0.0.1:{server.port}" for server in servers)))
        gateway = Program(["haproxy", "-db", "-f", CONFIGURATION], gateway_port,
                          {**os.environ, **names, "MNEMO_BIND": f"127.0.0.1:{gateway_port}"})
        programs.append(gateway)
        for server in servers:
            wait_until(server.ready)
        wait_until(gateway.listens)
        time.sleep(1)  # until it knows that they are ready
        check_two_at_once(servers, expected)
        check_expiry(servers[0], redis_port)
        check_kills(gateway_port, servers, redis, expected)
        check_rolling_restart(gateway_port, servers, expected)
        check_affinity(gateway_port, expected)
    except BaseException:
        for program in programs:
            program.errors.seek(0)
            print(program.command[0], program.errors.read()[-2000:], file=sys.stderr)
        raise
    finally:
        for program in programs:
            program.kill()


if __name__ == "__main__":
    main()
