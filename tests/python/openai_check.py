"""Uses `mnemo serve` through the `openai` client from PyPI.

usage: openai_check.py URL MODEL-NAME
"""

import sys

import openai

url, name = sys.argv[1:3]
client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=2)
assert [model.id for model in client.models.list()] == [name]
assert client.models.retrieve(name).id == name
given = {"model": name, "prompt": "line", "max_tokens": 40, "seed": 3, "temperature": 0.8}
whole = client.completions.create(**given)
assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 40
text, reasons, usage = "", [], None
for chunk in client.completions.create(**given, stream=True, stream_options={"include_usage": True}):
    usage = chunk.usage or usage
    for choice in chunk.choices:
        text += choice.text
        reasons.append(choice.finish_reason)
assert text == whole.choices[0].text and usage == whole.usage, (text, whole)
assert reasons[-1] == "length" and set(reasons[:-1]) == {None}
several = client.completions.create(**given, n=2, logprobs=3, stop=["\n\n"], user="u", presence_penalty=0.5, top_p=0.9)
assert len(several.choices) == 2 and len(several.choices[0].logprobs.tokens) == len(several.choices[0].logprobs.top_logprobs)
assert client.completions.create(**{**given, "prompt": ["line", "other"]}).choices[1].index == 1
assert client.completions.create(**given, extra_body={"top_k": 5, "min_p": 0.01, "repetition_penalty": 1.1}).choices[0].text
for call, code in ((lambda: client.chat.completions.create(model=name, messages=[{"role": "user", "content": "a"}]), "chat_not_supported"),
                   (lambda: client.embeddings.create(model=name, input="a"), "embeddings_not_supported")):
    try:
        call()
        raise AssertionError("not refused")
    except openai.BadRequestError as error:
        assert error.code == code, error
for changed, kind, param in (({"model": "other"}, openai.NotFoundError, "model"), ({"best_of": 2}, openai.BadRequestError, "best_of"),
                             ({"temperature": 9e9}, openai.BadRequestError, "temperature")):
    try:
        client.completions.create(**{**given, **changed})
        raise AssertionError("not refused")
    except kind as error:
        assert error.param == param, error
print(f"openai {openai.__version__}: ok")
