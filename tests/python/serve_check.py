"""Talks to `mnemo serve` as clients do, with Python's standard library alone.

usage: serve_check.py MNEMO MODEL [MUTATIONS]     MUTATIONS: only that many requests with random changes
Exit status 1 and a message if an answer is not what it should be.
"""

import concurrent.futures
import http.client
import json
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

MNEMO, MODEL = sys.argv[1:3]


class Server:
    def __init__(self, *options):
        self.errors, self.output = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([MNEMO, "serve", MODEL, "--port", "0", "--name", "m", *options],
                                        stdout=self.output, stderr=self.errors)
        deadline = time.monotonic() + 60
        while "serving 'm'" not in self.log():
            assert self.process.poll() is None and time.monotonic() < deadline, self.log()
            time.sleep(0.02)
        self.port = int(re.search(r"listening on http://[\w.]+:(\d+)", self.log())[1])

    def log(self):
        self.errors.seek(0)
        return self.errors.read()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def ask(self, method, path, body=None, headers={}):
        connection = self.connect()
        connection.request(method, path, body if body is None or isinstance(body, (str, bytes)) else json.dumps(body), headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        parsed = json.loads(content) if answer.headers["Content-Type"] == "application/json" else content.decode()
        return answer.status, parsed, answer.headers

    def complete(self, **members):
        status, body, _ = self.ask("POST", "/v1/completions", {"model": "m", "prompt": "line", **members})
        assert status == 200, body
        return body

    def refused(self, expected, param, body, path="/v1/completions", headers={}):
        status, answer, headers = self.ask("POST", path, body, headers)
        error = answer["error"]
        assert (status, error["param"]) == (expected, param), (status, error)
        assert error["message"] and error["type"], error
        return error, headers

    def metric(self, name):
        return float(re.search(rf"^{name} (\S+)$", self.ask("GET", "/metrics")[1], re.M)[1])

    def stop(self, expected=0):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(40) == expected
        self.output.seek(0)
        return self.output.read()


def events(answer):
    """The objects of a stream, up to [DONE]."""
    found = []
    for line in answer.read().decode().split("\n\n"):
        if line == "data: [DONE]":
            return found
        assert line.startswith("data: "), line
        found.append(json.loads(line[6:]))
    raise AssertionError("a stream without [DONE]")


def stream(server, **members):
    connection = server.connect()
    connection.request("POST", "/v1/completions", json.dumps({"model": "m", "prompt": "line", "stream": True, **members}))
    answer = connection.getresponse()
    assert answer.status == 200 and answer.headers["Content-Type"] == "text/event-stream", answer.headers
    return events(answer)


def generated(seed, tokens, *more):
    command = [MNEMO, "generate", MODEL, "--prompt", "line", "--seed", str(seed), "-n", str(tokens), "--json", "--quiet", *more]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["text"]


def check_texts(server):
    sampled = {"temperature": 0.8, "seed": 3, "max_tokens": 60}
    expected = generated(3, 60, "--temperature", "0.8")
    whole = server.complete(**sampled)
    choice = whole["choices"][0]
    assert choice == {"index": 0, "text": expected, "logprobs": None, "finish_reason": "length"}, (choice, expected)
    assert whole["object"] == "text_completion" and whole["id"].startswith("cmpl-")
    assert whole["usage"]["completion_tokens"] == 60
    chunks = stream(server, **sampled, stream_options={"include_usage": True})
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks[:-1]) == expected
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 2) + ["length"]
    assert len(chunks) > 20 and chunks[0]["usage"] is None
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"] == whole["usage"]

    stop = expected[20:23]
    stopped = server.complete(**sampled, stop=[stop])["choices"][0]
    assert stopped["text"] == expected[:expected.find(stop)] and stopped["finish_reason"] == "stop", stopped
    assert server.complete(**sampled, echo=True)["choices"][0]["text"] == "line" + expected
    assert server.complete(temperature=0, top_p=0.5, seed=9)["choices"][0] == server.complete(temperature=0)["choices"][0]
    assert server.complete()["usage"]["completion_tokens"] == 16
    assert server.complete(**{**sampled, "max_tokens": 0})["choices"][0]["text"] == ""

    several = server.complete(**sampled, n=3, prompt=["line", "other"])["choices"]
    assert [one["index"] for one in several] == list(range(6))
    assert [one["text"] for one in several[:3]] == [expected] + [generated(seed, 60, "--temperature", "0.8") for seed in (4, 5)]
    texts = {}
    for chunk in stream(server, **sampled, n=3, prompt=["line", "other"]):
        for one in chunk["choices"]:
            texts[one["index"]] = texts.get(one["index"], "") + one["text"]
    assert [texts[i] for i in range(6)] == [one["text"] for one in several]

    likely = server.complete(**sampled, logprobs=2)["choices"][0]["logprobs"]
    assert {len(values) for values in likely.values()} == {60}
    assert all(p <= 0 and (t not in top or top[t] == p) and len(top) <= 2 for t, p, top in
               zip(likely["tokens"], likely["token_logprobs"], likely["top_logprobs"]))
    assert "".join(likely["tokens"]) == expected or "\ufffd" in expected

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        seeds = list(range(16))
        beside = list(pool.map(lambda seed: server.complete(max_tokens=40, seed=seed)["choices"][0]["text"], seeds))
    assert beside == [server.complete(max_tokens=40, seed=seed)["choices"][0]["text"] for seed in seeds]
    assert len(set(beside)) > 8


def check_refusals(server):
    good = {"model": "m", "prompt": "line"}
    server.refused(404, "model", {**good, "model": "other"})
    server.refused(400, "best_of", {**good, "best_of": 2})
    server.refused(400, "temperature", {**good, "temperature": -1})
    server.refused(400, "prompt", {"model": "m", "prompt": [123456789]})
    error, _ = server.refused(400, "prompt", {"model": "m", "prompt": ""})
    assert error["message"] == "prompt: expected at least one token to continue from, found none", error
    server.refused(400, None, "{")
    server.refused(400, None, b'{"prompt": "\xff"}')
    for path, code in (("/v1/chat/completions", "chat_not_supported"), ("/v1/embeddings", "embeddings_not_supported"),
                       ("/v1/translate", "translate_not_supported"), ("/v1/classify", "classify_not_supported"),
                       ("/v1/detect", "detect_not_supported")):
        error, headers = server.refused(400, None, good, path)
        assert error["code"] == code and headers["x-should-retry"] == "false", (error, headers)
    assert server.ask("GET", "/v1/completions")[0] == 405
    assert server.ask("GET", "/../../etc/passwd")[0] == 404
    assert server.ask("GET", "/health")[0] == 200 and server.ask("GET", "/ready")[0] == 200
    status, models, _ = server.ask("GET", "/v1/models")
    assert status == 200 and [model["id"] for model in models["data"]] == ["m"]
    assert server.ask("GET", "/v1/models/%6D")[0] == 200 and server.ask("GET", "/v1/models/m%")[0] == 404
    assert server.ask("GET", "/v1/models/m")[1]["object"] == "model" and server.ask("GET", "/v1/models/x")[0] == 404
    status, page, headers = server.ask("GET", "/")
    assert status == 200 and headers["Content-Type"].startswith("text/html") and "http" not in page.replace("<!doctype html>", "")


def check_attention(server):
    """What the page shows: weights over memory and segment, which sum to 1."""
    seen = server.ask("POST", "/v1/attention", {"model": "m", "prompt": "line of a text " * 3})[1]
    assert seen["layers"] and all(abs(sum(layer["weights"]) - 1) < 1e-3 for layer in seen["layers"]), seen
    assert all(0 < layer["memory"] < len(layer["weights"]) for layer in seen["layers"]), seen
    server.refused(400, "prompt", {"model": "m", "prompt": "a"}, "/v1/attention")


def check_clients_that_leave():
    """What they asked for ends within 100 ms, at best of three, since other programs run too. A stream that nobody reads is held by then."""
    server = Server("--max-tokens", "1000000", "--no-access-log")
    for streams in (True, False):
        seconds = []
        for _ in range(3):
            one = socket.create_connection(("127.0.0.1", server.port))
            body = json.dumps({"model": "m", "prompt": "line", "max_tokens": 1_000_000, "n": 8, "stream": streams})
            one.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            if streams:
                one.recv(100)
            while server.metric("mnemo_requests_in_flight") == 0:
                pass
            begin = time.monotonic()
            one.close()
            while server.metric("mnemo_requests_in_flight") > 0:
                assert time.monotonic() < begin + 5, "a client that has left is still written for"
            seconds.append(time.monotonic() - begin)
        assert min(seconds) < 0.1, seconds
        print(f"a client that leaves is noticed within {1e3 * min(seconds):.0f} ms", flush=True)
    assert server.metric("mnemo_texts_running") == 0 and server.metric("mnemo_texts_waiting") == 0
    server.stop()


def check_mutations(count):
    """Bytes that are nearly requests: the server answers or closes, and lives."""
    server = Server("--max-tokens", "16", "--max-requests", "4", "--no-access-log")
    numbers = random.Random(1)
    session = server.ask("POST", "/v1/sessions", {})[1]["id"]
    server.ask("POST", f"/v1/sessions/{session}/feed", {"prompt": "line"})
    connection = server.connect()
    connection.request("GET", f"/v1/sessions/{session}/state")
    state = connection.getresponse().read()
    bodies = [("POST", "/v1/completions", {"model": "m", "prompt": "line", "max_tokens": 2, "n": 2, "stop": ["a"], "logprobs": 2}),
              ("POST", "/v1/completions", {"model": "m", "session": session, "prompt": [3], "max_tokens": 2, "stream": True}),
              ("POST", "/v1/sessions", {"sampling": {"seed": 1, "top_p": 0.5}, "ttl": 1}),
              ("POST", f"/v1/sessions/{session}/feed", {"prompt": "line", "if_position": 4}),
              ("POST", f"/v1/sessions/{session}/score", {"prompt": "line"}),
              ("POST", f"/v1/sessions/{session}/rewind", {"name": "undo"}),
              ("GET", f"/v1/sessions/{session}", None), ("PUT", "/v1/sessions", state)]
    requests = []
    for method, path, body in bodies:
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        requests.append(f"{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
    for _ in range(count):
        changed = bytearray(requests[numbers.randrange(len(requests))])
        for _ in range(numbers.randint(1, 4)):
            place = numbers.randrange(len(changed))
            kind = numbers.randrange(3)
            if kind == 0:
                changed[place] = numbers.randrange(256)
            elif kind == 1:
                del changed[place:place + numbers.randint(1, 8)]
            else:
                changed[place:place] = changed[place:place + numbers.randint(1, 8)]
        with socket.create_connection(("127.0.0.1", server.port)) as one:
            one.settimeout(10)
            try:
                one.sendall(changed)
                one.shutdown(socket.SHUT_WR)
                while one.recv(65536):
                    pass
            except ConnectionError:  # refused before it was read to its end
                pass
            except TimeoutError:
                raise AssertionError(f"no answer to {bytes(changed)}") from None
    assert server.ask("GET", "/health")[0] == 200
    assert server.complete()["usage"]["completion_tokens"] == 16
    server.stop()


def check_keys():
    command = [MNEMO, "serve", MODEL, "--host", "0.0.0.0", "--port", "0"]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 2 and "--api-key-file" in refused.stderr, refused
    with tempfile.NamedTemporaryFile("w") as keys:
        keys.write("a-key-of-some-length\n")
        keys.flush()
        server = Server("--api-key-file", keys.name)
        for wrong in ({}, {"Authorization": "Bearer a-key-of-another-length"}):
            assert server.ask("GET", "/v1/models", headers=wrong)[0] == 401
            assert server.refused(401, None, {"model": "m", "prompt": "line"}, headers=wrong)[1]["WWW-Authenticate"] == "Bearer"
        assert server.ask("GET", "/v1/models", headers={"Authorization": "Bearer a-key-of-some-length"})[0] == 200
        assert server.ask("GET", "/ready")[0] == 200 and server.ask("GET", "/metrics")[0] == 401
        server.stop()


def check_end(server):
    """SIGTERM: what is being written is written to its end."""
    connection = server.connect()
    connection.request("POST", "/v1/completions", json.dumps(
        {"model": "m", "prompt": "line", "stream": True, "max_tokens": 1500, "seed": 3}))
    answer = connection.getresponse()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        reading = pool.submit(events, answer)
        lines = server.stop().splitlines()
    texts = reading.result()
    assert texts[-1]["choices"][0]["finish_reason"] == "length", texts[-1]
    entries = [json.loads(line) for line in lines]
    assert all({"time", "path", "status", "seconds"} <= entry.keys() for entry in entries)
    assert entries[-1]["tokens_out"] == 1500 and entries[-1]["status"] == 200, entries[-1]
    assert any(entry["status"] == 499 for entry in entries) and "prompt" not in entries[-1]


def check_sessions(server):
    sampling = {"temperature": 0.8, "seed": 3}
    expected = generated(3, 60, "--temperature", "0.8")

    def create(**members):
        status, facts, headers = server.ask("POST", "/v1/sessions", {"sampling": sampling, **members})
        assert status == 201 and headers["ETag"] == '"1"' and facts["position"] == 0, facts
        return facts["id"]

    def write(session, tokens=30, prompt="", **members):
        return server.complete(session=session, prompt=prompt, max_tokens=tokens, **members)["choices"][0]["text"]

    def facts(session):
        return server.ask("GET", f"/v1/sessions/{session}")[1]

    def do(session, verb, body, expected=200):
        status, answer, _ = server.ask("POST", f"/v1/sessions/{session}/{verb}", body)
        assert status == expected, answer
        return answer

    whole, parts = create(), create()
    assert write(whole, 60, "line") == expected
    for piece in ("li", "n", "e"):
        do(parts, "feed", {"prompt": piece})
    assert facts(parts)["position"] == 4 == do(parts, "feed", {"prompt": []})["position"]
    first = write(parts)
    fork = do(parts, "fork", {"n": 2}, 201)["data"][1]["id"]
    short = create(ttl=100)
    assert server.ask("POST", "/v1/sessions", {"ttl": 86401})[1]["error"]["param"] == "ttl"
    assert do(short, "fork", {}, 201)["data"][0]["expires_at"] <= facts(short)["expires_at"] + 50
    do(parts, "marks", {"name": "half"})
    connection = server.connect()
    connection.request("GET", f"/v1/sessions/{parts}/state")
    state = connection.getresponse().read()
    second = "".join(chunk["choices"][0]["text"] for chunk in stream(server, session=parts, prompt="", max_tokens=30))
    assert first + second == expected, (first, second, expected)
    status, imported, _ = server.ask("PUT", "/v1/sessions", state)
    assert status == 201 and imported["position"] == 34, imported
    assert write(fork) == second == write(imported["id"])
    do(parts, "rewind", {"name": "undo"})
    assert write(parts) == second
    server.complete(session=parts, prompt="other", max_tokens=5)
    do(parts, "rewind", {"name": "half"})
    assert write(parts, temperature=0) != second and facts(parts)["marks"] == ["half"]
    do(parts, "rewind", {"name": "undo"})
    assert write(parts) == second
    do(parts, "rewind", {"name": "none"}, 404)
    for i in range(7):
        do(parts, "marks", {"name": f"mark {i}"})
    do(parts, "marks", {"name": "one too many"}, 400)

    assert server.ask("PUT", "/v1/sessions", b"no session")[0] == 400
    own = re.search(rb'"model":"([0-9a-f]{64})"', state)[1]
    other = own[::-1]
    message = server.ask("PUT", "/v1/sessions", state.replace(own, other))[1]["error"]["message"]
    assert own.decode() in message and other.decode() in message, message
    assert server.ask("PUT", "/v1/sessions", state[:-1])[0] == 400

    key = {"Idempotency-Key": "a"}
    body = {"model": "m", "session": whole, "prompt": "line", "max_tokens": 5}
    once = server.ask("POST", "/v1/completions", body, key)
    again = server.ask("POST", "/v1/completions", body, key)
    assert once[1] == again[1] and again[2]["X-Mnemo-Replayed"] == "true" and facts(whole)["position"] == 64 + 9
    assert server.ask("POST", "/v1/completions", {**body, "prompt": "other"}, key)[0] == 422
    for path in "/v1/sessions", f"/v1/sessions/{whole}/feed":
        assert server.ask("POST", path, {"prompt": "other"}, key)[0] == 400
    likely = {**body, "session": create(), "logprobs": 2}
    once, again = (server.ask("POST", "/v1/completions", likely, key) for _ in range(2))
    assert once[1] == again[1] and len(once[1]["choices"][0]["logprobs"]["tokens"]) == 5, (once, again)
    assert "".join(c["choices"][0]["text"] for c in stream(server, session=whole)) != ""
    server.refused(412, "if_position", {**body, "if_position": 3})
    position = facts(whole)["position"]
    assert server.complete(session=whole, prompt="", if_position=position)["choices"][0]["text"]
    server.refused(404, "session", {**body, "session": "0" * 32})
    server.refused(404, "session", {**body, "session": "../x"})
    server.refused(400, "n", {**body, "n": 2})
    server.refused(400, "prompt", {"model": "m", "session": create(), "prompt": ""})

    # A client that leaves: as before, or with keep_partial as far as it came; meanwhile others are told to wait.
    for keeps in (False, True):
        position = facts(whole)["position"]
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps(
            {"model": "m", "session": whole, "prompt": "line", "max_tokens": 4096, "stream": True, "keep_partial": keeps}))
        connection.getresponse().read(200)
        _, headers = server.refused(409, "session", body)
        assert headers["Retry-After"]
        assert server.ask("DELETE", f"/v1/sessions/{whole}")[0] == 409
        connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()
        deadline = time.monotonic() + 5
        while server.metric("mnemo_requests_in_flight") > 0:
            assert time.monotonic() < deadline
        after = facts(whole)["position"]
        assert after > position if keeps else after == position, (keeps, position, after)

    scored = do(create(), "score", {"prompt": "line"})
    assert len(scored["tokens"]) == 4 and scored["tokens"][0]["log_probability"] is None
    assert all(token["log_probability"] < 0 for token in scored["tokens"][1:])
    assert server.ask("GET", "/v1/sessions")[0] == 404
    assert server.ask("DELETE", f"/v1/sessions/{whole}")[1]["deleted"] is True
    assert server.ask("GET", f"/v1/sessions/{whole}")[0] == 404
    brief = create(ttl=1)
    time.sleep(2.5)
    assert server.ask("GET", f"/v1/sessions/{brief}")[0] == 404
    assert server.metric("mnemo_session_bytes") > 0


def check_log_that_nobody_reads():
    """A pipe full of lines of the access log does not stop the server."""
    process = subprocess.Popen([MNEMO, "serve", MODEL, "--port", "0", "--name", "m"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    port = int(re.search(r":(\d+)", process.stderr.readline())[1])
    for _ in range(1500):  # 150 KB
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        connection.close()
    process.kill()
    lines = process.communicate()[0].splitlines()
    assert 100 < len(lines) < 1500 and all(json.loads(line) for line in lines[:-1]), len(lines)


def check_log_of_prompts():
    """Where it is asked for: every prompt, also of sessions and as ids."""
    server = Server("--log-prompts")
    server.complete(prompt=[1, 2], max_tokens=1)
    session = server.ask("POST", "/v1/sessions", {})[1]["id"]
    for verb, prompt in (("feed", "line 3"), ("score", "line 5")):
        assert server.ask("POST", f"/v1/sessions/{session}/{verb}", {"prompt": prompt})[0] == 200
    prompts = [json.loads(line).get("prompt") for line in server.stop().splitlines() if line.startswith("{")]
    assert [prompt for prompt in prompts if prompt] == ["[1,2]", "line 3", "line 5"], prompts


def check_stored_sessions():
    """Sessions that leave memory, and that outlive the process, whether it ends or is killed."""
    sampling = {"temperature": 0.8, "seed": 3}
    expected = generated(3, 40, "--temperature", "0.8")
    with tempfile.TemporaryDirectory() as folder:
        options = ("--session-dir", folder, "--session-memory", "1", "--no-access-log")
        server = Server(*options)
        ids = []
        size = 1
        while len(ids) < 30 or (len(ids) * size < 3 << 20 and len(ids) < 400):
            ids.append(server.ask("POST", "/v1/sessions", {"sampling": sampling})[1]["id"])
            first = server.complete(session=ids[-1], max_tokens=20)["choices"][0]["text"]
            assert expected.startswith(first)
            size = server.ask("GET", f"/v1/sessions/{ids[-1]}")[1]["bytes"]
        assert server.metric("mnemo_session_bytes") <= 1 << 20 and server.metric("mnemo_sessions") == len(ids)
        half = len(ids) // 2
        for one in ids[:half]:
            assert first + server.complete(session=one, prompt="", max_tokens=20)["choices"][0]["text"] == expected
        server.stop()
        server = Server(*options, "--durable")
        for one in ids[half:]:
            status, body, headers = server.ask("POST", "/v1/completions",
                                               {"model": "m", "session": one, "prompt": "", "max_tokens": 20})
            assert status == 200 and first + body["choices"][0]["text"] == expected, body
            assert headers["X-Mnemo-Saved"] == "durable"
        server.process.kill()
        server.process.wait()
        server = Server(*options)
        assert all(server.ask("GET", f"/v1/sessions/{one}")[1]["position"] == 44 for one in ids)
        for one in ids:
            assert server.ask("DELETE", f"/v1/sessions/{one}")[0] == 200
        assert server.metric("mnemo_session_stored_bytes") == 0
        server.stop()
        # One that cannot be stored costs no other, and is told.
        server = Server("--session-dir", folder, "--save-every", "86400", "--no-access-log")
        ids = [server.ask("POST", "/v1/sessions", {})[1]["id"] for _ in range(12)]
        locks = pathlib.Path(folder) / f".lock-{ids[0][0]}"
        locks.unlink(missing_ok=True)
        locks.mkdir()
        server.stop(2)
        lost = {one for one in ids if one[0] == ids[0][0]}
        assert f"{len(lost)} sessions could not be stored" in server.log() and ids[0] in server.log(), server.log()
        assert {path.stem for path in pathlib.Path(folder).glob("*.session")} == set(ids) - lost


if __name__ == "__main__":
    if len(sys.argv) > 3:
        check_mutations(int(sys.argv[3]))
        sys.exit()
    main = Server()
    check_texts(main)
    check_refusals(main)
    check_attention(main)
    check_clients_that_leave()
    check_sessions(main)
    check_end(main)
    check_mutations(1000)
    check_keys()
    check_log_that_nobody_reads()
    check_log_of_prompts()
    check_stored_sessions()
