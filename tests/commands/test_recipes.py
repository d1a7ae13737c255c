"""Every recipe can be read, says where it comes from, and declares what can be built."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import pytest

from hf_dense.commands import pretrain
from hf_dense.commands.main import main
from hf_dense.commands.options import read_options
from hf_dense.commands.recipes import FOLDER, STAGES, describe, read_configs
from hf_dense.errors import InputError
from hf_dense.methods import METHODS, get_method
from hf_dense.pretraining.options import PretrainingOptions, given_mapping

RECIPES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
OVERLAYS = ("one_gpu", "demo")
OTHERS = ("simlm_wiki", "master_wiki", "master_paper", "dupmae_paper", "retromae_stage2", "dupmae_stage2")
PRETRAINING = (*METHODS, *OTHERS)  # of other corpora, stages and settings than the method's own recipe
ABLATIONS = [name for name in RECIPES if "variants" in read_configs([name])]
FINETUNING = [name for name in RECIPES if name not in (*PRETRAINING, *OVERLAYS, *ABLATIONS, "msmarco")]


def pretraining(*names: str) -> tuple[PretrainingOptions, Any]:
    from transformers import TrainingArguments

    arguments = argparse.Namespace(config=names, rest=["--use_cpu", "true"])
    return read_options(arguments, PretrainingOptions, TrainingArguments)


@pytest.mark.parametrize("overlay", ["", *OVERLAYS])
@pytest.mark.parametrize("recipe", PRETRAINING)
def test_a_pretraining_declares_its_method(recipe: str, overlay: str) -> None:
    options, training = pretraining(*filter(None, (recipe, overlay)))
    method = options.method
    assert recipe == method or recipe.startswith(f"{method}_")
    given = (options.backbone_config, options.encoders, options.decoders)  # a mapping arrives as JSON, as from a flag
    sizes, encoders, decoders = (json.loads(value) if isinstance(value, str) else value for value in given)
    config = get_method(method).config(backbone_config=sizes, encoders=encoders, decoders=decoders)
    assert options.max_length <= config.backbone.max_position_embeddings
    assert training.output_dir == (f"build/{method}_demo" if overlay == "demo" else f"build/{recipe}")
    assert (options.backbone is None) == (overlay == "demo" or method == "seed_encoder")
    if config.contrasts:
        assert training.gradient_accumulation_steps == 1


def test_the_demo_keeps_the_losses_of_a_paper() -> None:
    paper, demo = (read_configs(["dupmae_paper", *more])["encoders"] for more in ([], ["demo"]))
    assert demo == paper
    paper, plain, demo = (
        read_configs(names) for names in (["master_paper"], ["master", "demo"], ["master_paper", "demo"])
    )
    assert demo["encoders"] == paper["encoders"]
    assert demo["decoders"] == {**paper["decoders"], **plain["decoders"]}
    assert [*plain["decoders"]] == ["queries", "continuation"]
    assert not {"encoders", "decoders"} & read_configs(["simlm", "demo"]).keys(), "titles are not read"


def test_changes_of_encoders_and_decoders_are_laid_over_each_other(tmp_path: Path) -> None:
    texts = {
        "rate": "encoders: {encoder: {view: {rate: 0.15}}}",
        "extending": "extends: dupmae_paper\nencoders: {encoder: {view: {rate: 0.15}}}",
        "without": "encoders: {encoder: {bag: null}}\ndecoders: {decoder: null}",
        "anew": "encoders: null",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    rate, extending, without, anew = (str(tmp_path / f"{name}.yaml") for name in texts)
    bag = read_configs(["dupmae_paper"])["encoders"]["encoder"]["bag"]
    for files in (["dupmae_paper", "demo", rate], [extending], [rate, "dupmae_paper"]):
        assert read_configs(files)["encoders"] == {"encoder": {"bag": bag, "view": {"rate": 0.15}}}
    assert read_configs([extending, without])["encoders"] == {"encoder": {"bag": None, "view": {"rate": 0.15}}}
    assert read_configs([extending, without])["decoders"] == {"decoder": None}
    assert read_configs([extending, anew, rate])["encoders"] == {"encoder": {"view": {"rate": 0.15}}}


@pytest.mark.parametrize(
    ("flag", "changed"),
    [
        ({"encoder": {"view": {"rate": 0.15}}}, {"encoder": {"bag": {"weight": 2.0}, "view": {"rate": 0.15}}}),
        ({"encoder": {"bag": None}}, {"encoder": {"bag": None, "view": {"rate": 0.3}}}),
        ({"encoder": None}, {"encoder": None}),
        (None, None),
    ],
)
def test_a_flag_changes_encoders_over_what_files_change(flag: Any, changed: Any, tmp_path: Path) -> None:
    from transformers import TrainingArguments

    (tmp_path / "own.yaml").write_text("encoders: {encoder: {bag: {weight: 2.0}, view: {rate: 0.3}}}")
    parser = argparse.ArgumentParser()
    pretrain.add_arguments(parser)
    words = ["--config", "dupmae", "--config", str(tmp_path / "own.yaml"), "--encoders", json.dumps(flag)]
    arguments = parser.parse_args(words)
    arguments.rest = ["--use_cpu", "true"]
    options, _ = read_options(arguments, PretrainingOptions, TrainingArguments)
    assert isinstance(options.encoders, str)
    assert json.loads(options.encoders) == changed


def test_a_flag_for_one_size_leaves_the_others_of_a_recipe() -> None:
    from transformers import TrainingArguments

    parser = argparse.ArgumentParser(allow_abbrev=False)
    pretrain.add_arguments(parser)
    given = ["--config", "retromae", "--config", "demo", "--backbone_config", '{"num_hidden_layers": 4}']
    arguments = parser.parse_args(given)
    arguments.rest = ["--use_cpu", "true"]
    options, _ = read_options(arguments, PretrainingOptions, TrainingArguments)
    demo = read_configs(["retromae", "demo"])["backbone_config"]
    assert given_mapping(options.backbone_config, "backbone_config") == {**demo, "num_hidden_layers": 4}


@pytest.mark.parametrize("recipe", PRETRAINING)
def test_one_gpu_reads_as_much_per_step_as_the_paper(recipe: str) -> None:
    processes = int(re.findall(r"--num_processes (\d+)", describe(FOLDER / f"{recipe}.yaml")["cost"])[0])
    (_, paper), (_, one) = pretraining(recipe), pretraining(recipe, "one_gpu")
    sizes = [each.per_device_train_batch_size * each.gradient_accumulation_steps for each in (paper, one)]
    assert sizes[0] * processes == sizes[1]


@pytest.mark.parametrize(
    ("flags", "refused"),
    [
        ("--config retromae --backbone_config {{}}", True),
        ("--config {config} --backbone_config {{}}", False),
        ("--config {config} --backbone me/mine --backbone_config {{}}", True),
        ("--config retromae --config {config}", True),
        ("--config {config} --config retromae", False),
        ("--config {config} --backbone me/mine", False),
        ("--config {extending}", False),
        ("--config retromae --config demo", False),
        ("--config retromae --config demo --backbone build/condenser_demo", False),
        ("--config seed_encoder --backbone build/seed_encoder", False),
        ("--config seed_encoder --tokenizer me/words", False),
        ("--config seed_encoder --tokenizer me/words --vocab_size 9", True),
        ("--config retromae --vocab_size 9", True),
        ("--config retromae --config demo --vocab_size 9", False),
    ],
)
def test_sizes_beside_what_is_ready_are_refused_unless_it_is_named_after_them(
    flags: str, refused: bool, tmp_path: Path
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("method: retromae\nout: out\nbackbone_config: {hidden_size: 32}\n")
    extending = tmp_path / "extending.yaml"
    extending.write_text(f"extends: {own}\nbackbone: me/mine\n")
    parser = argparse.ArgumentParser()
    pretrain.add_arguments(parser)
    arguments, rest = parser.parse_known_args(
        [*flags.format(config=own, extending=extending).split(), "--use_cpu", "true"]
    )
    arguments.rest = [*rest, "--max_steps", "1"]
    arguments.corpus = str(tmp_path / "nowhere.jsonl")
    with pytest.raises(InputError, match="from scratch|trained on" if refused else r"nowhere\.jsonl does not exist"):
        pretrain.run(arguments)


def test_there_is_a_finetuning_for_every_paper_and_dataset() -> None:
    msmarco = {"seed", "cocondenser", "cotmae", "query_as_context", "simlm", "retromae", "dupmae", "master"}
    others = {
        "condenser_nq",
        "cocondenser_nq",
        "simlm_nq",
        "master_nq",
        "seed_nq",
        "seed_documents",
        "retromae_beir",
        "query_as_context_paper",
        "own",
    }
    assert {f"{name}_msmarco" for name in msmarco} | others == set(FINETUNING)


@pytest.mark.parametrize("name", FINETUNING)
def test_the_trainers_take_a_finetunings_sections(name: str, tmp_path: Path) -> None:
    from hf_dense.finetuning.biencoder import BiencoderTrainingArguments
    from hf_dense.finetuning.pipeline import Pipeline
    from hf_dense.finetuning.reranker import RerankerTrainingArguments
    from hf_dense.finetuning.sections import OF_RERANKER, trainer_arguments

    values = read_configs([name])
    assert values.pop("out").startswith("build/finetuning/")
    pipeline = Pipeline.of({**values, "out": str(tmp_path / "out")})
    for section in (pipeline.retriever1, pipeline.retriever2, pipeline.distilled):
        if section is not None:
            assert isinstance(section["learning_rate"], float)
            chosen_by = "eval_metric" if pipeline.validation else None
            ours = {"output_dir": str(tmp_path), "use_cpu": True}
            trainer_arguments(BiencoderTrainingArguments, "a retriever", section, chosen_by, **ours)
    if pipeline.reranker is not None:
        options = {key: value for key, value in pipeline.reranker.items() if key not in OF_RERANKER}
        RerankerTrainingArguments(output_dir=str(tmp_path), use_cpu=True, **options)
        assert pipeline.distilled is None or pipeline.distilled["distillation"] == "kl"


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_says_what_it_is_where_it_comes_from_and_what_it_costs(name: str) -> None:
    head = describe(FOLDER / f"{name}.yaml")
    assert head["what"]
    assert head["source"] != "not said"
    assert re.search(r"not measured|minutes|hours|days", head["cost"])


def test_sections_are_merged_by_option_and_shared_by_retrievers(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "extends: dupmae_msmarco\nretriever: {chunk: 8}\nretriever2: {passages: 4}\nmined: {depth: 9}\nreranker:\n"
        "distilled:\n"
    )
    values = read_configs([str(tmp_path / "mine.yaml")])
    assert set(values) & set(STAGES) == {"bm25", "retriever1", "mined", "retriever2"}
    first, second = values["retriever1"], values["retriever2"]
    assert (first["chunk"], first["passages"], first["num_train_epochs"]) == (8, 1, 4)
    assert second == {**first, "passages": 4, "start": "retriever1"}
    assert values["mined"] == {"depth": 9}


def test_of_a_backbones_sizes_a_later_file_changes_those_that_it_names(tmp_path: Path) -> None:
    def sizes(later: str, *names: str) -> dict[str, Any]:
        (tmp_path / "mine.yaml").write_text(f"backbone_config: {later}\n")
        found: dict[str, Any] = read_configs([*(names or ("retromae", "demo")), str(tmp_path / "mine.yaml")])
        return found.get("backbone_config") or {}

    demo = read_configs(["retromae", "demo"])["backbone_config"]
    assert sizes("{num_hidden_layers: 4}") == {**demo, "num_hidden_layers": 4}
    assert sizes("{model_type: bert, num_hidden_layers: 4}") == {**demo, "model_type": "bert", "num_hidden_layers": 4}
    assert sizes("{model_type: modernbert, hidden_size: 64}") == {"model_type": "modernbert", "hidden_size": 64}
    assert sizes("null") == {}
    assert read_configs(["seed_encoder", "demo"])["backbone_config"] == demo, "one encoder for all methods"


def test_what_a_file_extends_lies_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "mine.yaml").write_text("extends: base.yaml\nseed: 1\n")
    (tmp_path / "files" / "base.yaml").write_text("max_steps: 4\n")
    (tmp_path / "base.yaml").write_text("max_steps: 1\n")
    monkeypatch.chdir(tmp_path)
    assert read_configs(["files/mine.yaml"]) == {"max_steps": 4, "seed": 1}
    (tmp_path / "files" / "base.yaml").unlink()
    assert read_configs(["files/mine.yaml"]) == {"max_steps": 1, "seed": 1}


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("retriever1:\n  learning_rate: 1e-3\n  learning_rate: 1e-4\n")
    with pytest.raises(InputError, match="has learning_rate twice in one place"):
        read_configs([str(tmp_path / "mine.yaml")])


def test_an_overlay_follows_the_method_that_is_named() -> None:
    assert read_configs(["demo"], method="cotmae")["per_device_train_batch_size"] == 8
    assert read_configs(["retromae", "demo"], method="cotmae")["out"] == "build/cotmae_demo"
    assert "by_method" not in read_configs(["one_gpu"])


def test_options_of_no_method_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("by_method: {retomae: {max_steps: 9}}\n")
    with pytest.raises(InputError, match="options by_method of 'retomae', which is no method; did you mean retromae"):
        read_configs([str(tmp_path / "mine.yaml")], method="retromae")


def test_what_retrievers_share_is_of_the_first_one_too(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("retriever: {chunk: 8}\nretriever2: {passages: 4}\n")
    values = read_configs([str(tmp_path / "mine.yaml")])
    assert values == {"retriever1": {"chunk": 8}, "retriever2": {"chunk": 8, "passages": 4}}


def test_what_retrievers_share_is_not_dropped_where_there_are_no_stages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text("retriever: {learning_rate: 7}\n")
    for verb in ("pretrain", "finetune"):
        with pytest.raises(SystemExit):
            main([verb, "--config", str(tmp_path / "mine.yaml"), "--out", str(tmp_path / "out")])
        assert "has the key 'retriever', which is no option here" in capsys.readouterr().err


def test_the_verb_lists_and_prints(capsys: pytest.CaptureFixture[str]) -> None:
    main(["recipes"])
    listed = capsys.readouterr().out
    assert all(re.search(rf"^  {name} ", listed, re.MULTILINE) for name in RECIPES)
    assert listed.count("source: ") == listed.count("cost: ") == len(RECIPES)
    main(["recipes", "retromae"])
    assert capsys.readouterr().out == (FOLDER / "retromae.yaml").read_text()
    with pytest.raises(SystemExit) as stopped:
        main(["recipes", "retromay"])
    assert stopped.value.code == 2
    assert "error: There is no recipe or file retromay; did you mean retromae" in capsys.readouterr().err


def test_a_recipe_of_another_verb_is_refused() -> None:
    with pytest.raises(InputError, match=r"simlm_msmarco has the key '.*', which is no option here"):
        pretraining("simlm_msmarco")
