"""`mnemo serve` with a model that translates, classifies or detects: the answers are those of the commands.

usage: serve_answers_check.py MNEMO MODEL translate TEXT...
       serve_answers_check.py MNEMO MODEL texts TEXT...
       serve_answers_check.py MNEMO MODEL images FILE...
       serve_answers_check.py MNEMO MODEL objects FILE...
"""

import base64
import json
import struct
import subprocess
import sys
import zlib

KIND, INPUTS = sys.argv[3], sys.argv[4:]
from serve_check import MNEMO, MODEL, Server  # noqa: E402  (reads MNEMO and MODEL from the command line)


def command(*words, lines=None):
    done = subprocess.run([MNEMO, *words], input=lines, check=True, capture_output=True, text=True)
    return done.stdout


def lines_of(texts):
    return "".join(text + "\n" for text in texts)


def equal(found, expected):
    """Equal up to what a text of six decimals or another batch rounds."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(equal(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(equal, found, expected))
    return abs(found - expected) < 1e-5 if isinstance(expected, float) else found == expected


def large_png():
    """An image of 8,000 x 8,000 pixels in 11 KB of Base64."""
    def part(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress(bytes(8000 * (1 + 1000)), 9)
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", 8000, 8000, 1, 0, 0, 0, 0)) +
                            part(b"IDAT", rows) + part(b"IEND", b"")).decode()


def main():
    server = Server("--no-access-log")
    path = {"translate": "/v1/translate", "objects": "/v1/detect"}.get(KIND, "/v1/classify")

    def answer(body, headers={}):
        status, found, _ = server.ask("POST", path, body, headers)
        assert status == 200 and found["object"] == "list" and found["model"] == "m", found
        assert [one["index"] for one in found["data"]] == list(range(len(found["data"]))), found
        return found["data"]

    given = INPUTS
    if KIND == "translate":
        expected = [json.loads(line)["translations"] for line in
                    command("translate", MODEL, "--json", "--nbest", "2", lines=lines_of(INPUTS)).splitlines()]
        found = [one["translations"] for one in answer({"model": "m", "input": INPUTS, "n": 2})]
        assert equal(found, [[{key: text[key] for key in ("text", "score", "tokens")} for text in texts] for texts in expected]), found
        assert len(answer({"model": "m", "input": INPUTS[0]})[0]["translations"]) == 1
        server.refused(400, "n", {"model": "m", "input": "a", "n": 1000}, path)
        server.refused(400, "input", {"model": "m", "input": "two\nlines"}, path)
        status, cut, _ = server.ask("POST", path, {"model": "m", "input": "a " * 3000})
        assert status == 200 and "cut to" in cut["warnings"][0], cut
        status, strange, _ = server.ask("POST", path, {"model": "m", "input": "\u6f22\u5b57 \u2603"})
        assert status == 200 and "<unk>" in strange["warnings"][0], strange
    elif KIND == "texts":
        expected = [one["classes"] for one in json.loads(command("classify", MODEL, "--json", "--top", "3", lines=lines_of(INPUTS)))]
        found = [one["classes"] for one in answer({"model": "m", "input": INPUTS, "top": 3})]
        assert equal(found, expected), (found, expected)
    elif KIND == "objects":
        given = [base64.b64encode(open(file, "rb").read()).decode() for file in INPUTS]
        expected = [{key: value for key, value in one.items() if key != "image"} for one in
                    json.loads(command("detect", MODEL, *INPUTS, "--json", "--threshold", "0", "--top", "3"))]
        found = answer({"model": "m", "input": given, "top": 3, "threshold": 0})
        assert equal([{key: value for key, value in one.items() if key != "index"} for one in found], expected), (found, expected)
        assert all(len(one["objects"]) == 3 and "mask" in one["objects"][0] for one in found), found
        plain = answer({"model": "m", "input": given, "top": 3, "threshold": 0, "masks": False})
        assert all("mask" not in thing for one in plain for thing in one["objects"]), plain
        assert all(thing["score"] >= 0.5 for thing in answer({"model": "m", "input": given[0]})[0]["objects"])
        whole = answer(open(INPUTS[0], "rb").read(), {"Content-Type": "image/jpeg"})
        assert whole == answer({"model": "m", "input": "data:image/jpeg;base64," + given[0]})
        for key, wrong in (("threshold", 2), ("threshold", "a"), ("top", 0), ("top", 101), ("masks", 1)):
            server.refused(400, key, {"model": "m", "input": given[0], key: wrong}, path)
        server.refused(400, "input", {"model": "m", "input": [given[0]] * 9}, path)
        server.refused(400, "input", {"model": "m", "input": base64.b64encode(b"no image").decode()}, path)
        error, _ = server.refused(400, "input", {"model": "m", "input": large_png(), "top": 100}, path)
        assert "masks" in error["message"], error
    else:
        given = [base64.b64encode(open(file, "rb").read()).decode() for file in INPUTS]
        expected = [one["tasks"] for one in json.loads(command("classify", MODEL, *INPUTS, "--json", "--top", "3"))]
        found = [one["heads"] for one in answer({"model": "m", "input": given, "top": 3})]
        assert equal(found, expected), (found, expected)
        whole = answer(open(INPUTS[0], "rb").read(), {"Content-Type": "image/jpeg"})
        assert equal([{name: best[:3] for name, best in whole[0]["heads"].items()}], expected[:1])
        assert answer({"model": "m", "input": "data:image/jpeg;base64," + given[0]}) == whole
        server.refused(400, "input", {"model": "m", "input": base64.b64encode(b"no image").decode()}, path)
        server.refused(400, "input", {"model": "m", "input": "*"}, path)
        server.refused(400, "input", "no image", path, {"Content-Type": "image/png"})

    if KIND == "images":
        for option in (["--kv-precision", "int8"], ["--max-tokens", "5"], ["--session-dir", "/none"], ["--store", "redis://a"],
                       ["--session-memory", "1"], ["--session-ttl", "9"], ["--save-every", "9"], ["--log-prompts"],
                       ["--session-dir", "/none", "--durable"]):
            refused = subprocess.run([MNEMO, "serve", MODEL, "--port", "0", *option], capture_output=True, text=True, timeout=60)
            assert refused.returncode == 2 and f"{option[0]} is for models that continue texts" in refused.stderr, refused
    for wrong in (None, "", [], 3, [given[0]] * 65):
        server.refused(400, "input", {"model": "m", "input": wrong}, path)
    server.refused(400, "beam", {"model": "m", "input": given[0], "beam": 2}, path)
    server.refused(404, "model", {"model": "x", "input": given[0]}, path)
    for other in {"/v1/completions", "/v1/sessions", "/v1/detect", "/v1/classify", "/v1/chat/completions"} - {path}:
        error, headers = server.refused(400, None, {"model": "m", "prompt": "a"}, other)
        assert error["code"].endswith("_not_supported") and path in error["message"] and headers["x-should-retry"] == "false", error
    assert server.ask("GET", "/ready")[0] == 200 and server.ask("GET", "/v1/models")[1]["data"][0]["id"] == "m"
    server.stop()


if __name__ == "__main__":
    main()
