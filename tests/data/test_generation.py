"""Generated texts: drawn as asked, the same after a kill and on any number of pieces, published form in the end."""

from __future__ import annotations

import json
import random
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from launched import launch
from pyarrow import parquet
from safetensors.torch import load_file, save_file
from tiny_retriever import LETTERS, tiny_tokenizer, write_encoder, write_writer
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPT2Model,
    Seq2SeqTrainingArguments,
    Trainer,
)

from hf_dense.data import generation, hub_names
from hf_dense.data.generation import TextGenerationConfig, generate, load_language_model
from hf_dense.data.generator_training import train_generator
from hf_dense.errors import InputError


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A random writer of queries and one of continuations."""
    root = tmp_path_factory.mktemp("models")
    write_writer(root / "queries")
    special = {"vocab_size": len(tiny_tokenizer()), "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    gpt2 = GPT2Config(**special, n_embd=16, n_layer=1, n_head=2, n_positions=64)
    GPT2LMHeadModel(gpt2).save_pretrained(root / "continuation")
    tiny_tokenizer().save_pretrained(root / "continuation")
    return {name: str(root / name) for name in ("queries", "continuation")}


def corpus(count: int = 20) -> Dataset:
    generator = random.Random(0)
    texts = [" ".join(generator.choices(LETTERS, k=generator.randint(3, 12))) for _ in range(count)]
    return Dataset.from_dict({"id": [str(at) for at in range(count)], "text": texts})


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = parquet.read_table(folder / "corpus").to_pylist()
    return rows


def small(models: dict[str, str], kind: str, **changes: Any) -> TextGenerationConfig:
    return TextGenerationConfig(**{"kind": kind, "model": models[kind], "output_length": 6, "candidates": 3, **changes})


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "_PIECE", 8)


def test_every_passage_gets_its_queries(models: dict[str, str], tmp_path: Path) -> None:
    generate(corpus(), tmp_path / "out", small(models, "queries"), batch_size=3)
    rows = rows_of(tmp_path / "out")
    assert [row["id"] for row in rows] == [str(at) for at in range(20)]
    assert all(1 <= len(row["queries"]) <= 3 for row in rows)
    assert all(query and "[" not in query for row in rows for query in row["queries"])
    assert not (tmp_path / "out.partial").exists()
    assert "| passages | 20 |" in (tmp_path / "out" / "README.md").read_text()


def test_a_continuation_goes_on_after_the_passage(models: dict[str, str], tmp_path: Path) -> None:
    generate(corpus(), tmp_path / "out", small(models, "continuation", input_length=30))
    for row in rows_of(tmp_path / "out"):
        assert isinstance(row["continuation"], str)
        assert not row["continuation"].startswith(row["text"])


def test_equal_queries_can_be_kept_once(models: dict[str, str], tmp_path: Path) -> None:
    asked = {"output_length": 1, "candidates": 30, "top_k": 3}
    for name, deduplicate in (("all", False), ("once", True)):
        generate(corpus(), tmp_path / name, small(models, "queries", deduplicate=deduplicate, **asked))
    for row, once in zip(rows_of(tmp_path / "all"), rows_of(tmp_path / "once"), strict=True):
        assert len(row["queries"]) > len(once["queries"]) <= 3
        assert list(dict.fromkeys(row["queries"])) == once["queries"]


def test_a_killed_run_goes_on_and_ends_as_an_uninterrupted_one(
    models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(models, "queries")
    generate(corpus(), tmp_path / "whole", config)
    save, done = generation._save, []

    def killed(file: Path, *given: Any) -> None:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(file)
        save(file, *given)

    monkeypatch.setattr(generation, "_save", killed)
    with pytest.raises(KeyboardInterrupt):
        generate(corpus(), tmp_path / "out", config)
    assert not (tmp_path / "out").exists()
    assert len(list((tmp_path / "out.partial" / "pieces").glob("*.parquet"))) == 2
    written: list[Path] = []
    monkeypatch.setattr(generation, "_save", lambda file, *given: (written.append(file), save(file, *given)))
    generate(corpus(), tmp_path / "out", config)
    assert len(written) == 1, "what was done is not done again"
    assert rows_of(tmp_path / "out") == rows_of(tmp_path / "whole")


@pytest.mark.slow
def test_two_processes_write_what_one_does(models: dict[str, str], tmp_path: Path) -> None:
    corpus(600).to_parquet(tmp_path / "corpus.parquet")  # three pieces
    for processes in (1, 2):
        command = ["-m", "hf_dense.commands.main", "data", "generate", tmp_path / "corpus.parquet"]
        command += ["--model", models["queries"], "--output_length", "6", "--out", tmp_path / str(processes)]
        done = launch(*command, processes=processes)
        assert done.returncode == 0, done.stderr
    assert rows_of(tmp_path / "1") == rows_of(tmp_path / "2")
    assert len(rows_of(tmp_path / "1")) == 600
    assert not list(tmp_path.glob("*.partial"))


def changed(rows: Dataset, index: int) -> Dataset:
    """The same passages, but for one."""
    return rows.map(lambda row, at: {"text": f"{row['text']} a" if at == index else row["text"]}, with_indices=True)


def test_a_run_goes_on_over_the_same_passages_and_model_alone(
    models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, save = small(models, "queries"), generation._save
    with monkeypatch.context() as patch:
        patch.setattr(generation, "_save", lambda file, *given: save(file, *given) if "00." in file.name else killed())
        with pytest.raises(KeyboardInterrupt):
            generate(corpus(), tmp_path / "out", config)
    other = tmp_path / "model"
    shutil.copytree(models["queries"], other)
    weights = load_file(other / "model.safetensors")
    save_file({name: tensor + 1e-3 for name, tensor in weights.items()}, other / "model.safetensors", {"format": "pt"})
    for rows, model, what in (
        (changed(corpus(), 19), models["queries"], "corpus"),
        (corpus(), str(other), "model"),
        (corpus().add_column("title", ["t"] * 20), models["queries"], "corpus"),
    ):
        with pytest.raises(InputError, match=f"holds unfinished work made from (an)?other {what}"):
            generate(rows, tmp_path / "out", small(models, "queries", model=model))
    renamed = tmp_path / "renamed"
    shutil.copytree(models["queries"], renamed)
    generate(corpus(), tmp_path / "out", small(models, "queries", model=str(renamed)))
    generate(corpus(), tmp_path / "whole", config)
    assert rows_of(tmp_path / "out") == rows_of(tmp_path / "whole")


def test_what_decides_on_generation_is_part_of_the_model(models: dict[str, str]) -> None:
    model, tokenizer = generation.load_language_model(models["queries"])
    before = generation.fingerprint_language_model(model, tokenizer)
    assert model.generation_config is not None
    model.generation_config.repetition_penalty = 1.3
    assert generation.fingerprint_language_model(model, tokenizer) != before
    model.generation_config.repetition_penalty = None
    assert generation.fingerprint_language_model(model, tokenizer) == before
    tokenizer.chat_template = "{{ messages }}"
    assert generation.fingerprint_language_model(model, tokenizer) != before


def test_the_seed_decides(models: dict[str, str], tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        generate(corpus(8), tmp_path / name, small(models, "queries", seed=seed))
    first, again, other = (rows_of(tmp_path / name) for name in "abc")
    assert first == again != other


def test_the_template_is_the_prompt(models: dict[str, str]) -> None:
    generator = generation.TextGenerator(small(models, "queries", template="a b: {title} {text}"))
    assert generator._prompt("x y", "t") == "a b: t x y"
    generator.tokenizer.chat_template = "{% for m in messages %}<u>{{ m['content'] }}</u>{% endfor %}"
    assert generator._prompt("x", "t") == "<u>a b: t x</u>"


def test_a_title_or_text_that_is_absent_is_empty(
    models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts: list[str] = []
    batch = generation.TextGenerator._batch
    monkeypatch.setattr(generation.TextGenerator, "_batch", lambda own, part: prompts.extend(part) or batch(own, part))
    rows = Dataset.from_dict({"title": [None, "t"], "text": ["x y", None]})
    generate(rows, tmp_path / "out", small(models, "queries", template="a {title}: {text}"))
    assert sorted(prompts) == ["a : x y", "a t: "]


def test_what_asks_an_instruction_model_is_not_cut_off(models: dict[str, str]) -> None:
    config = small(models, "queries", template="{title}. {text} ask", input_length=20)
    generator = generation.TextGenerator(config)
    generator.tokenizer.chat_template = "{{ messages[0]['content'] }} now"
    assert generator._prompt("a b c", "t") == "t. a b c ask now"
    long = generator._prompt("a b c " * 50, "t")
    assert long.startswith("t. a b c ")
    assert long.endswith(" ask now")
    assert 10 < len(generator._tokens(long)) <= 20


def test_what_stands_behind_the_passage_is_not_cut_off(models: dict[str, str]) -> None:
    for kind in ("queries", "continuation"):
        generator = generation.TextGenerator(small(models, kind, template="{title}. {text} a b", input_length=20))
        long = generator._prompt("a b c " * 50, "t")
        assert long.startswith("t. a b c ")
        assert long.endswith(" a b")
        assert 10 < len(generator._tokens(long, special=True)) <= 20


def test_a_prompt_has_no_more_tokens_than_the_model_has_positions(models: dict[str, str], tmp_path: Path) -> None:
    long = Dataset.from_dict({"text": ["a b c " * 50]})
    generate(long, tmp_path / "out", small(models, "continuation"))
    assert rows_of(tmp_path / "out")[0]["continuation"]
    with pytest.raises(InputError, match="has 64 positions, and output_length is 64; make it smaller"):
        generate(long, tmp_path / "long", small(models, "continuation", output_length=64))


def test_a_prompt_without_room_for_a_passage_is_refused(models: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"The prompt has .* tokens without a passage, and .* reads 8 of it; shorten"):
        generation.TextGenerator(small(models, "queries", template="a b c " * 5 + "{text}", input_length=8))


def test_a_tokenizer_that_cannot_pad_is_refused(models: dict[str, str], tmp_path: Path) -> None:
    shutil.copytree(models["continuation"], tmp_path / "model")
    tokenizer = tiny_tokenizer()
    for name in ("pad_token", "eos_token", "sep_token", "cls_token", "bos_token", "unk_token", "mask_token"):
        setattr(tokenizer, name, None)
    tokenizer.save_pretrained(tmp_path / "model")
    with pytest.raises(InputError, match="has no token that pads or ends texts"):
        load_language_model(str(tmp_path / "model"))


def test_a_chat_template_that_fails_is_refused(models: dict[str, str], tmp_path: Path) -> None:
    shutil.copytree(models["queries"], tmp_path / "model")
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{{ raise_exception('A system message comes first') }}"
    tokenizer.save_pretrained(tmp_path / "model")
    with pytest.raises(InputError, match="model makes no prompt: A system message comes first"):
        generation.TextGenerator(TextGenerationConfig("queries", str(tmp_path / "model")))


def test_the_temperature_is_that_of_the_draws(models: dict[str, str], tmp_path: Path) -> None:
    for name, temperature in (("cold", 1e-4), ("colder", 1e-5), ("warm", 1.0), ("own", None)):
        generate(corpus(8), tmp_path / name, small(models, "queries", temperature=temperature))
    cold, colder, warm, own = (rows_of(tmp_path / name) for name in ("cold", "colder", "warm", "own"))
    assert cold == colder != warm
    assert warm == own, "that of this model is 1"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"temperature": 0.0}, "temperature is 0.0; it is above 0"),
        ({"kind": "answers"}, "kind is 'answers'; allowed: queries, continuation"),
        ({"candidates": 0}, "candidates is 0; it is from 1 to 1000000"),
        ({"input_length": 10**20}, "input_length is 100000000000000000000; it is from 1 to"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"template": "write a query"}, "does not say where the passage goes"),
        ({"template": "{text} {url}"}, "may name {text} and {title} alone"),
        ({"template": "{text.url}"}, "may name {text} and {title} alone"),
        ({"template": "{text[url]}"}, "may name {text} and {title} alone"),
        ({"model": "./nowhere"}, "No language model and tokenizer can be loaded from './nowhere'"),
    ],
)
def test_bad_options(models: dict[str, str], tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        generate(
            corpus(),
            tmp_path / "out",
            TextGenerationConfig(**{"kind": "queries", "model": models["queries"], **changes}),
        )
    assert not (tmp_path / "out").exists()


def test_a_column_that_is_there_and_batches_of_no_size_are_refused(models: dict[str, str], tmp_path: Path) -> None:
    filled = corpus().add_column("queries", [["q"]] * 20)
    with pytest.raises(InputError, match="has the column 'queries' already"):
        generate(filled, tmp_path / "out", small(models, "queries"))
    with pytest.raises(InputError, match="batch_size is -1; it is at least 1"):
        generate(corpus(), tmp_path / "out", small(models, "queries"), batch_size=-1)


def training(**changes: Any) -> Seq2SeqTrainingArguments:
    values = {
        "max_steps": 60,
        "per_device_train_batch_size": 16,
        "learning_rate": 1e-2,
        "logging_steps": 20,
        "save_strategy": "no",
        "use_cpu": True,
        "disable_tqdm": True,
        "report_to": "none",
        **changes,
    }
    return Seq2SeqTrainingArguments(**values)


def test_a_trained_generator_writes_what_it_learnt(tmp_path: Path) -> None:
    """The query of a passage is its first word: a few steps are enough to write words that occur."""
    generator = random.Random(0)
    words = ["alpha", "beta", "gamma", "delta"]
    passages = [" ".join(generator.choices(words, k=4)) for _ in range(200)]
    rows = Dataset.from_dict({"passage": passages, "query": [text.split()[0] for text in passages]})
    tiny = {"d_model": 32, "d_ff": 64, "d_kv": 16, "num_layers": 1, "num_heads": 2}
    train_generator(rows, tmp_path / "generator", training(), config=tiny, vocab_size=60)
    asked = TextGenerationConfig("queries", str(tmp_path / "generator"), output_length=4, candidates=2, top_k=1)
    generate(Dataset.from_dict({"text": passages[:20]}), tmp_path / "out", asked)
    written = [query for row in rows_of(tmp_path / "out") for query in row["queries"]]
    assert written
    assert sum(query in words for query in written) > 0.8 * len(written)


def test_a_continuation_model_is_trained_from_text(tmp_path: Path) -> None:
    rows = Dataset.from_dict({"text": ["one two three four five six"] * 100})
    tiny = {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 64}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*pin_memory")
        given = training(max_steps=2, use_cpu=False)
        train_generator(rows, tmp_path / "generator", given, config=tiny, vocab_size=60)
    assert json.loads((tmp_path / "generator" / "config.json").read_text())["model_type"] == "gpt2"


@pytest.mark.parametrize("steps", [7, 12], ids=["on the way", "after the last step"])
def test_a_killed_training_goes_on_and_ends_the_same(tmp_path: Path, steps: int) -> None:
    rows = Dataset.from_dict({"text": [f"one two three four five {word}" for word in ("six", "seven")] * 50})
    tiny = {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 64}
    trained = 0

    def run(name: str, rows: Dataset = rows, **changes: Any) -> Path:
        given = training(**{"max_steps": 12, "save_strategy": "steps", "save_steps": 3, **changes})
        return train_generator(rows, tmp_path / name, given, config=tiny, vocab_size=60)

    whole = run("whole")
    with pytest.MonkeyPatch.context() as patch:
        step = Trainer.training_step

        def counted(*given: Any) -> Any:
            nonlocal trained
            if trained == steps:
                killed()
            trained += 1
            return step(*given)

        patch.setattr(Trainer, "training_step", counted)
        patch.setattr(GPT2LMHeadModel, "save_pretrained", dies_outside_checkpoints(GPT2LMHeadModel.save_pretrained))
        with pytest.raises(KeyboardInterrupt):
            run("killed")
    assert not (tmp_path / "killed").exists()
    last = steps - steps % 3
    assert (tmp_path / "killed.partial" / "pieces" / f"checkpoint-{last}").is_dir()
    for changes, what in (({"max_steps": 60}, r"max_steps \(12, now 60\)"), ({"weight_decay": 0.1}, "weight_decay")):
        with pytest.raises(InputError, match=f"holds unfinished work made from (an)?other {what}"):
            run("killed", **changes)
    with pytest.raises(InputError, match="holds unfinished work made from other rows"):
        run("killed", changed(rows, 99))
    with pytest.MonkeyPatch.context() as patch:
        taken = []
        patch.setattr(Trainer, "training_step", lambda *given: (taken.append(1), step(*given))[1])
        resumed = run("killed", save_steps=4)  # where it is saved does not decide
    assert len(taken) == 12 - last
    assert not (tmp_path / "killed.partial").exists()
    first, second = (load_file(folder / "model.safetensors") for folder in (whole, resumed))
    assert all(torch.equal(first[name], second[name]) for name in first)


def dies_outside_checkpoints(save: Any) -> Any:
    """Saving a model, which is killed where the training is done."""

    def saved(model: Any, folder: Any, *given: Any, **named: Any) -> None:
        if "checkpoint-" not in str(folder):
            killed()
        save(model, folder, *given, **named)

    return saved


def test_no_pickle_is_left(tmp_path: Path) -> None:
    rows = Dataset.from_dict({"text": ["one two three"] * 20})
    tiny = {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 64}
    out = train_generator(rows, tmp_path / "generator", training(max_steps=1), config=tiny, vocab_size=60)
    assert {file.suffix for file in out.iterdir()} == {".json", ".safetensors"}


def killed() -> None:
    raise KeyboardInterrupt


def test_nothing_to_train_on_and_the_wrong_kind(models: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the data lack the column 'passage'"):
        train_generator(Dataset.from_dict({"query": ["a"]}), tmp_path / "out", training())
    with pytest.raises(InputError, match="the data lack any rows"):
        train_generator(Dataset.from_dict({"text": []}), tmp_path / "out", training())
    rows = Dataset.from_dict({"passage": ["a"], "query": ["b"]})
    with pytest.raises(InputError, match="To write queries give an encoder-decoder"):
        train_generator(rows, tmp_path / "out", training(), base=models["continuation"])
    for template, sentence in (("ask:", "does not say where the passage goes"), ("{query}: {text}", "may name {text}")):
        with pytest.raises(InputError, match=sentence):
            train_generator(rows, tmp_path / "out", training(), template=template)
    assert not any(tmp_path.iterdir())


def test_a_language_model_of_the_hub_is_read_at_its_revision(
    models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []
    monkeypatch.setattr(
        hub_names, "snapshot_download", lambda *_, revision, **__: asked.append(revision) or models["queries"]
    )
    load_language_model("me/writer@v3")
    assert asked == ["v3"]


def test_what_writes_no_text_is_no_generator(models: dict[str, str], tmp_path: Path) -> None:
    """Transformers loads both, with random weights in place of those that are not there."""
    encoder = write_encoder(tmp_path / "encoder")
    with pytest.raises(InputError, match="is an encoder, which writes no text"):
        generation.load_language_model(str(encoder))
    untied = GPT2Config.from_pretrained(models["continuation"], tie_word_embeddings=False)
    GPT2Model(untied).save_pretrained(tmp_path / "headless")
    tiny_tokenizer().save_pretrained(tmp_path / "headless")
    with pytest.raises(InputError, match=r"is no whole language model: it has no weights lm_head\.weight"):
        generation.load_language_model(str(tmp_path / "headless"))
