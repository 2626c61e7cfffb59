"""Writing, scoring and measuring equal the program."""

import gc
import json
import math
import os
import pickle
import signal
import threading
import time

import pandas
import pytest
import torch

import mnemo
from conftest import GOLDEN, RUNS, command, detector

TEXT = RUNS / "text.txt"
RUNS_OF_TEXT = ["text", "abc", "lora"]


@pytest.mark.parametrize("run", RUNS_OF_TEXT)
@pytest.mark.parametrize("options", [{}, {"temperature": 0.0}, {"top_k": 5, "seed": 3}])
def test_generate_equals_the_program(run, options):
    folder = RUNS / run
    flags = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    printed = command("generate", folder, "--quiet", "--prompt", "the ", "--tokens", 60, *flags)
    model = mnemo.load(folder)
    assert "the " + model.generate("the ", max_tokens=60, **options) == printed
    assert "".join(model.stream("the ", max_tokens=60, **options)) == printed[4:]


MODELS = {
    "recurrent_tokens": ([{"type": "recurrent_tokens", "num_mem_tokens": 2}], "softmax"),
    "memory_tokens": ([{"type": "memory_tokens", "num_mem_tokens": 2}], "softmax"),
    "segment_cache": ([{"type": "segment_cache", "mem_len": 8}], "relative"),
    "compressive": ([{"type": "compressive", "mem_len": 8}], "relative"),
    "knn": ([{"type": "knn", "memory_len": 32, "top_k": 4}], "softmax"),
    "grc": ([{"type": "grc", "cache_len": 8, "lifetime": "sequence"}], "softmax"),
    "linear": ([], "linear"),
    "sliding_window": ([], "sliding_window"),
    "cache_and_rows": ([{"type": "segment_cache"}, {"type": "recurrent_tokens", "num_mem_tokens": 2}], "relative"),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_memory_writes_as_the_program(name, recipe, tmp_path):
    memory, attention = MODELS[name]
    changes = {"model.memory": memory, "model.backbone.attention": {"type": attention}, "train.steps": 3}
    run = mnemo.train(recipe, out=tmp_path / "run", set=changes)
    printed = command("generate", run.folder, "--quiet", "--prompt", "the ", "--tokens", 40, "--seed", 2)
    assert "the " + run.load().generate("the ", max_tokens=40, seed=2) == printed


def test_a_stream_stops_within_a_token(model):
    text = model.text(seed=1)
    text.feed("the ")
    pieces = text.stream(max_tokens=10_000_000)
    first = next(pieces)
    tokens = text.num_tokens
    pieces.close()
    assert list(pieces) == [] and text.num_tokens == tokens
    assert first and tokens <= 4 + 4
    old = text.stream(max_tokens=20)
    next(old)
    new = text.stream(max_tokens=4)
    with pytest.raises(RuntimeError, match="another stream"):
        next(old)
    assert len(list(new)) == 4


def test_texts_fork_rewind_save_and_load(model, tmp_path):
    text = model.text(seed=5)
    text.feed("the ")
    mark, fork, other = text.mark(), text.fork(), text.fork(9)
    written = text.generate(30)
    assert fork.generate(30) == written != other.generate(30)
    text.rewind(mark)
    assert text.generate(30) == written
    text.save(tmp_path / "session")
    further = text.generate(20)
    assert text.load(tmp_path / "session").generate(20) == further
    assert model.text(session=tmp_path / "session").generate(20) == further
    assert model.text(session=tmp_path / "session", seed=8).generate(20) != further
    assert model.text(session=tmp_path / "session", precision="float32", temperature=0.8).generate(20) == further
    fork.rewind(mark)
    assert fork.from_bytes(fork.to_bytes()).generate(30) == written
    with pytest.raises(ValueError, match="same model"):
        mnemo.load(RUNS / "abc").text().rewind(mark)
    text.close()
    with pytest.raises(ValueError, match="closed"):
        text.feed("more")


def test_a_session_of_the_program_goes_on(model, tmp_path):
    first = command("generate", RUNS / "text", "--quiet", "--prompt", "the ", "--tokens", 20, "--save", tmp_path / "s")
    rest = command("generate", RUNS / "text", "--quiet", "--session", tmp_path / "s", "--tokens", 20)
    assert model.text(session=tmp_path / "s").generate(20) == rest
    assert model.generate("the ", max_tokens=40) == first[4:] + rest


def test_score_equals_the_program(model):
    printed = json.loads(command("generate", RUNS / "text", "--prompt", "the ", "--score", TEXT, "--json"))
    tokens = model.score(TEXT.read_text(), prompt="the ")
    assert [(t.id, t.text, t.log_probability) for t in tokens] == [
        (t["id"], t["text"], t["log_probability"]) for t in printed["tokens"]
    ]
    assert list(pandas.DataFrame(tokens).columns) == ["id", "text", "log_probability"]
    assert math.isnan(model.score("a")[0].log_probability)


def test_a_model_writes_with_the_weights_it_has_now(tmp_path):
    """Writes through .data, as fused optimizers make them, leave no trace in the version of a tensor."""
    model = mnemo.load(RUNS / "text")
    before = [token.log_probability for token in model.score("house", prompt="the ")]
    for parameter in model.parameters():
        parameter.data.mul_(0.5)
    model.save(tmp_path / "halved")
    after, saved = (
        [token.log_probability for token in one.score("house", prompt="the ")]
        for one in (model, mnemo.load(tmp_path / "halved"))
    )
    assert after == saved != before


def test_stop_texts_of_an_iterator_stop_a_stream(model):
    stop = model.generate("the ", max_tokens=60)[10:12]
    streamed = "".join(model.stream("the ", max_tokens=60, stop=iter([stop])))
    assert streamed == model.generate("the ", max_tokens=60, stop=[stop])


@pytest.mark.parametrize("run", ["text", "abc"])
def test_evaluate_equals_the_program(run):
    for flags, options in ([], {}), (["--segment-size", 5], {"segment_size": 5}):
        printed = json.loads(command("eval", RUNS / run, "--data", TEXT, "--json", *flags))
        found = mnemo.load(RUNS / run).evaluate(TEXT, **options)
        for name, value in found.metrics.items():
            assert printed[name] == value, name
        assert printed["predictions"] == found.predictions and printed["data"] == found.data


def test_classify_equals_the_program():
    folder, picture = GOLDEN / "vision_import/timm_vit", GOLDEN / "images/files/photo_7865c0.jpg"
    printed = json.loads(command("classify", folder, picture, "--json", "--top", 3))
    found = mnemo.load(folder).classify(picture, top=3)
    assert [(p.task, p.label, p.probability) for p in found] == [
        (task, best["label"], best["probability"]) for task, all in printed[0]["tasks"].items() for best in all
    ]
    skipped = mnemo.load(folder).classify([__file__], skip_broken=True)
    assert len(skipped) == 1 and skipped[0].error and math.isnan(skipped[0].probability)


def pixels(mask):
    """COCO's runs, which lie down the columns, as [height,width] bool."""
    height, width = mask["size"]
    counts, place = [], 0
    while place < len(mask["counts"]):
        number, shift, more = 0, 0, True
        while more:
            group = ord(mask["counts"][place]) - 48
            number |= (group & 31) << shift
            shift, place, more = shift + 5, place + 1, group & 32
        if group & 16:
            number -= 1 << shift
        counts.append(number + (counts[-2] if len(counts) > 2 else 0))
    values = torch.tensor([False, True]).repeat((len(counts) + 1) // 2)[: len(counts)]
    return values.repeat_interleave(torch.tensor(counts)).reshape(width, height).T


def test_detect_equals_the_program(tmp_path):
    folder, images = detector()
    printed = json.loads(command("detect", folder, images, "--json", "--threshold", 0, "--top", 3))
    found = mnemo.load(folder).detect(images, threshold=0, top=3, draw=True)
    assert len(found) == 4
    for image, theirs in zip(found, printed):
        assert (image.image, image.height, image.width) == (theirs["image"], theirs["height"], theirs["width"])
        assert [one.label for one in image.objects] == [one["label"] for one in theirs["objects"]] == ["square"] * 3
        for one, other in zip(image.objects, theirs["objects"]):  # the program rounds to six digits
            assert [one.score, *one.box] == pytest.approx([other["score"], *other["box"]], abs=5.1e-7, rel=0)
            assert one.mask.dtype == torch.bool and torch.equal(one.mask, pixels(other["mask"]))
        assert image.svg.startswith("<svg") and image._repr_html_() == image.svg and image.error == ""
    assert list(pandas.DataFrame(found)["height"]) == [72] * 4
    table = pandas.DataFrame([one for image in found for one in image.objects])
    assert list(table.columns) == ["image", "label", "score", "box", "mask"] and len(table) == 12

    model = mnemo.load(folder)
    assert model.detect(images / "0.png", threshold=1) == [mnemo.DetectedImage(str(images / "0.png"), 72, 64, [])]
    assert all(one.mask is None for one in model.detect(images / "0.png", threshold=0, masks=False)[0].objects)
    (tmp_path / "broken.png").write_text("no image")
    skipped = model.detect([tmp_path / "broken.png", images / "1.png"], skip_broken=True)
    assert "broken.png" in skipped[0].error and skipped[0].height == 0 and skipped[1].error == ""
    with pytest.raises(ValueError, match="broken.png"):
        model.detect(tmp_path / "broken.png")
    with pytest.raises(FileNotFoundError, match="missing.png"):
        model.detect(tmp_path / "missing.png")
    with pytest.raises(ValueError, match="detector"):
        mnemo.load(GOLDEN / "vision_import/timm_vit").detect(images)


def test_translate_equals_the_program():
    lines = [line.split("\t")[0] for line in (RUNS / "pairs.tsv").read_text().splitlines()[:5]]
    printed = command("translate", RUNS / "pairs", "--json", "--nbest", 2, "--beam", 3, stdin="\n".join(lines) + "\n")
    found = mnemo.load(RUNS / "pairs").translate(lines, nbest=2, beam=3)
    expected = [t for line in printed.splitlines() for t in json.loads(line)["translations"]]
    assert [(t.text, t.score, t.log_probability) for t in found] == [
        (t["text"], t["score"], t["log_probability"]) for t in expected
    ]


def test_tokenizer(model):
    tokenizer = model.tokenizer
    text = TEXT.read_text()[:200]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    places = tokenizer.offsets(text)
    assert len(places) == len(ids) and "".join(text[a:b] for a, b in places) == text
    with pytest.raises(TypeError, match="ids"):
        tokenizer.decode(iter(ids))
    assert tokenizer.offsets(text * 1000)[-1][1] == 1000 * len(text)


def test_inspect_equals_the_program(model):
    printed = json.loads(command("inspect", RUNS / "text", "--text", "the house", "--json", "--cost"))
    found = model.inspect(text="the house", cost=True)
    assert json.loads(json.dumps(found.to_dict())) == printed
    assert found.cost == printed["cost"]
    assert found.maps[0]["attention"].dim() == 3 and len(found.words) > 0
    assert torch.allclose(found.maps[0]["attention"].sum(-1), torch.ones((), dtype=torch.float64), atol=1e-6)
    for wrong in ({"checkpoint": 999}, {"text": ""}):
        with pytest.raises(ValueError, match="inspect"):
            model.inspect(**wrong)
    assert mnemo.inspect(RUNS / "text").parameters == sum(p.numel() for p in model.parameters())


def test_threads_write_as_in_turn(model):
    alone = [model.generate("the ", max_tokens=60, seed=seed) for seed in range(8)]
    together = [""] * 8

    def write(seed):
        together[seed] = model.generate("the ", max_tokens=60, seed=seed)

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


def test_the_gil_is_free_while_a_model_writes(model):
    ticks, stop = 0, threading.Event()

    def write():
        for _ in range(20):
            model.generate("the ", max_tokens=400)
        stop.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not stop.wait(0.001):
        ticks += 1
    thread.join()
    assert ticks > 5


@pytest.mark.parametrize(
    "call",
    [
        lambda model: model.generate("the ", max_tokens=1 << 24),
        lambda model: model.text().feed("the house " * 200_000),
        lambda model: model.score("the house " * 200_000),
    ],
)
def test_ctrl_c_ends_a_call_within_a_second(model, call):
    sent = []

    def interrupt():
        time.sleep(0.5)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        call(model)
    assert time.monotonic() - sent[0] < 1.0
    thread.join()
    assert model.generate("the ", max_tokens=5)


def test_calls_leave_no_memory(model):
    def rss():
        gc.collect()
        return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def work(times):
        for _ in range(times):
            stream = model.stream("t", max_tokens=50)
            next(stream)
            stream.close()

    work(500)
    before = rss()
    work(2000)
    assert rss() - before < 1 << 20


def test_errors_are_pythons(model, tmp_path):
    with pytest.raises(FileNotFoundError, match="no_such_folder"):
        mnemo.load("no_such_folder")
    with pytest.raises(mnemo.InputError):
        mnemo.load(tmp_path)
    with pytest.raises(TypeError, match="checkpoint"):
        mnemo.load(RUNS / "text", checkpoint=True)
    with pytest.raises(FileNotFoundError, match="no_such.png"):
        mnemo.load(RUNS / "vit").inspect(image="no_such.png")
    with pytest.raises(ValueError, match="temperature"):
        model.generate("a", temperature=-1.0)
    with pytest.raises(ValueError, match="'max_tokens': expected 1 to 16777216, found 0"):
        model.generate("a", max_tokens=0)
    with pytest.raises(ValueError, match="token types need a table"):
        model(torch.tensor([[1, 2]]), token_types=torch.tensor([[0, 0]]))
    with pytest.raises(ValueError, match="source_valid"):
        model(torch.tensor([[1, 2]]), source_valid=torch.ones(1, 2, dtype=torch.bool))
    assert model.text().finish_reason == ""
    with pytest.raises(TypeError):
        model.generate("a", temperature="hot")
    with pytest.raises(TypeError):
        model.generate("a", temprature=1.0)
    with pytest.raises(FileNotFoundError):
        model.evaluate(tmp_path / "missing.txt")
    with pytest.raises(ValueError, match="images"):
        model.evaluate(part="valid", task="x")
    with pytest.raises(KeyError):
        model.evaluate(TEXT)["accuracy"]


def test_a_model_is_pickled_with_its_folder(model):
    again = pickle.loads(pickle.dumps(model))
    assert again.generate("the ", max_tokens=30) == model.generate("the ", max_tokens=30)


def test_measuring_changes_nothing():
    model, stripes = mnemo.load(RUNS / "task"), RUNS / "stripes"
    pixels = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    before = model(pixels).logits
    of_task = model.evaluate(stripes, task="stripes")
    assert torch.equal(model(pixels).logits, before)
    with pytest.raises(ValueError):
        model.evaluate(stripes, task="no such")
    assert torch.equal(model(pixels).logits, before)
    assert model.evaluate(stripes, task="stripes") == of_task


def test_a_model_of_any_precision_reads_images():
    folder, picture = GOLDEN / "vision_import/timm_vit", GOLDEN / "images/files/photo_7865c0.jpg"
    expected = mnemo.load(folder).classify(picture)
    double = mnemo.load(folder).double().classify(picture)
    assert [p.label for p in double] == [p.label for p in expected]
    assert [p.probability for p in double] == pytest.approx([p.probability for p in expected], rel=1e-5)
    assert mnemo.load(folder).bfloat16().classify(picture)[0].probability > 0
    torch.set_default_dtype(torch.float64)
    try:
        assert mnemo.load(folder).classify(picture) == expected
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.inference_mode():
        assert mnemo.load(RUNS / "vit").classify(picture)[0].probability > 0
    with pytest.raises(ValueError, match="float32 or float64"):
        mnemo.load(detector()[0]).bfloat16().detect(detector()[1])


def test_a_loaded_model_is_that_of_its_folder_wherever_it_is_used(tmp_path, monkeypatch):
    monkeypatch.chdir(GOLDEN)
    model = mnemo.load("vision_import/timm_vit")
    expected = model.classify(GOLDEN / "images/files/photo_7865c0.jpg")
    monkeypatch.chdir(tmp_path)
    assert model.classify(GOLDEN / "images/files/photo_7865c0.jpg") == expected
    assert pickle.loads(pickle.dumps(model)).folder == model.folder
    monkeypatch.chdir(model.folder)
    with pytest.raises(FileNotFoundError):
        mnemo.load("")
    (tmp_path / "deep/here").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep/here")
    (tmp_path / "deep/model").symlink_to(model.folder)
    monkeypatch.chdir(tmp_path)
    assert mnemo.load("link/../model").classify(GOLDEN / "images/files/photo_7865c0.jpg") == expected


def test_warnings_are_warnings_on_a_terminal(model, caplog, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with caplog.at_level("INFO", logger="mnemo"):
        model.score("the \u4e2d")
    warned = [one for one in caplog.records if "not in the model's vocabulary" in one.message]
    assert len(warned) == 1 and warned[0].levelname == "WARNING" and "\x1b" not in warned[0].message


def test_detectors_name_their_classes_and_find_what_is_finite():
    folder, images = detector()
    model = mnemo.load(folder)
    assert model.labels() == ["square"]
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with pytest.raises(mnemo.NotFinite):
        model.detect(images)


def test_translations_have_at_most_so_many_tokens():
    model = mnemo.load(RUNS / "pairs")
    lines = [line.split("\t")[0] for line in (RUNS / "pairs.tsv").read_text().splitlines()[:5]]
    for most in (2, 3, 5):
        assert all(one.tokens <= most for one in model.translate(lines, max_tokens=most))
    with pytest.raises(ValueError, match="max_tokens: expected at least 2"):
        model.translate(lines, max_tokens=1)
    with pytest.raises(ValueError, match="translate: beam: expected at least 1"):
        model.translate(lines, beam=0)
