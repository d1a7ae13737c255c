"""`hf-dense sweep` with variants: those of the papers' tables can be declared and run, and what is wrong is refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from json_lines import write_lines
from tiny_retriever import tiny_config, write_dataset, write_encoder

from hf_dense.commands.main import main
from hf_dense.commands.recipes import FOLDER, read_configs
from hf_dense.commands.sweep import plan_ablation
from hf_dense.errors import InputError
from hf_dense.experiments.ablation import Trial, check_declarations
from hf_dense.experiments.sweep_options import AblationOptions
from hf_dense.methods import get_method
from hf_dense.pretraining.options import PretrainingOptions

RECIPES = [path.stem for path in sorted(FOLDER.glob("*.yaml")) if "variants" in read_configs([path.stem])]
FEW = {"max_steps": 1, "per_device_train_batch_size": 2, "use_cpu": True, "save_strategy": "no", "disable_tqdm": True}
LENGTHS = {"max_length": 32, "query_length": 16}


def plan(name: str, **changes: Any) -> list[Trial]:
    return plan_ablation(AblationOptions("out", **changes), read_configs([name]))


@pytest.mark.parametrize("name", RECIPES)
def test_every_variant_of_a_paper_can_be_declared(name: str) -> None:
    trials = plan(name, seeds=[0, 1])
    assert len(trials) == 2 * len(read_configs([name])["variants"])
    described = set()
    for trial in trials:
        assert trial.pipeline.seed == int(trial.place[-1])
        if trial.pretraining is None:
            assert trial.pipeline.model == "bert-base-uncased"
            continue
        options, training = trial.pretraining
        assert trial.pipeline.model == training.output_dir
        assert training.seed == trial.pipeline.seed
        given: dict[str, Any] = {"encoders": options.encoders, "decoders": options.decoders}
        read = {key: json.loads(value) if isinstance(value, str) else value for key, value in given.items()}
        config = get_method(options.method).config(**read)
        specs = [str(config.encoder_specs), str(config.decoder_specs)]
        described.add((options.method, options.corpus, str(options.generator), options.generator_weight, *specs))
    without = sum(trial.pretraining is None for trial in trials)
    assert len(described) == (len(trials) - without) / 2, "two variants pre-train alike"


def test_a_variant_changes_its_own_options_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "extends: simlm_objectives\npretraining: {learning_rate: 1e-5}\nfinetuning: {retriever1: {passages: 4}}\n"
        "variants:\n  first:\n  second: {finetuning: {retriever1: {learning_rate: 3e-5}}}\n"
        "  third: {pretraining: {config: condenser}}\n"
    )
    values = read_configs([str(tmp_path / "mine.yaml")])
    first, second, third = plan_ablation(AblationOptions("out", collection="mine"), values)
    assert first.pretraining is not None
    assert third.pretraining is not None
    assert first.pretraining[1].learning_rate == third.pretraining[1].learning_rate == 1e-5
    assert (first.pretraining[0].corpus, third.pretraining[0].corpus) == ("build/marco", "build/marco")
    assert (first.pretraining[0].max_length, third.pretraining[0].max_length) == (144, 128)
    assert second.pretraining is not None
    assert second.pretraining[1].output_dir == first.pretraining[1].output_dir, "one pre-training for both"
    assert second.pipeline.model == first.pipeline.model != third.pipeline.model
    assert first.pipeline.collection == "mine"
    assert first.pipeline.retriever2 is first.pipeline.reranker is None
    rates = [trial.pipeline.retriever1["learning_rate"] for trial in (first, second)]
    assert rates == [2e-5, 3e-5]
    assert first.pipeline.retriever1["passages"] == second.pipeline.retriever1["passages"] == 4


def test_the_file_that_the_docs_show_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text()
    [shown] = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "decoders.yaml").write_text(shown)
    trials = plan_ablation(AblationOptions("out"), read_configs([str(tmp_path / "decoders.yaml")]))
    half, less, harder, none = trials
    assert [trial.variant for trial in trials] == ["half is hidden", "less is hidden", "harder negatives", "none"]
    check_declarations(trials)
    assert half.pipeline.model == harder.pipeline.model != less.pipeline.model
    assert (half.pipeline.mined.get("skip"), harder.pipeline.mined["skip"]) == (None, 10)
    assert (none.pretraining, none.pipeline.model) == (None, "bert-base-uncased")


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        ("{one: {}}", "two variants at least"),
        ("[one, two]", "two variants at least"),
        ("{one: {}, two: {decoders: {}}}", "The variant 'two' has the key 'decoders'"),
        ("{one: {}, two: {pretraining: {learning_rat: 1}}}", "'two' has the key 'learning_rat', .* did you mean"),
        ("{one: {}, two: {finetuning: {retriever9: {}}}}", "The variant 'two' has the key 'retriever9'"),
        ("{a b: {}, a-b: {}}", "too much alike"),
        ("{one: {}, %s: {}}" % ("x" * 201), "The variant 'x+' has too long a name for a directory"),
        ("{one: {}, two: {pretraining: {config: simlmm}}}", "no recipe or file simlmm; did you mean simlm"),
        ("{one: {}, two: {pretraining: {max_steps: many}}}", "'two' cannot be run: .*max_steps.*many"),
        ("{one: {}, two: {finetuning: {max_length: 32, query_length: 64}}}", "query_length is 64; .* max_length, 32"),
        ("{one: {}, two: {finetuning: {model: x}}}", "The variant 'two' names a model to fine-tune, but what is"),
        ("{one: {}, two: {}}\nfinetuning: {model: x}", "The file names a model to fine-tune, but what is pre-trained"),
        (
            "{one: {}, two: {finetuning: {measure_on: test}}}",
            "The variant 'two' has measure_on .* its own option",
        ),
        ("{one: {}, two: {finetuning: {keep: x}}}", "The variant 'two' has keep .* hf-dense evaluate afterwards"),
        (
            "{one: {}, two: {pretraining: {seed: 3}}}",
            "The variant 'two' has a seed in pretraining; all are run with each",
        ),
        ("{one: {}, two: {}}\nfinetuning: {seed: 3}", "The file has a seed in finetuning"),
        ("{one: {}, two: {finetuning: {collection: x}}}", "The variant 'two' has a collection; all are fine-tuned and"),
        ("{one: {}, two: {pretraining: 3}}", "The variant 'two' has 3 where a mapping"),
        ("{one: {}, two: 3}", "The variant 'two' has 3 where a mapping"),
    ],
)
def test_what_is_no_ablation(variants: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"extends: simlm_rates\nvariants: {variants}\n")
    with pytest.raises(InputError, match=message):
        plan_ablation(AblationOptions("out"), read_configs([str(tmp_path / "mine.yaml")]))


def test_a_variant_without_a_model_is_named() -> None:
    """Nothing is pre-trained, and nothing said that is fine-tuned instead."""
    values = {"pretraining": {"config": "retromae", "corpus": "c"}, "finetuning": {"collection": "data"}}
    with pytest.raises(InputError, match=r"^The variant 'none' is not pre-trained and names no model"):
        plan_ablation(AblationOptions("out"), {**values, "variants": {"all": {}, "none": {"pretraining": None}}})


def test_a_ready_backbone_sets_aside_how_a_recipe_makes_one(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "pretraining: {config: [retromae, demo], backbone: me/mine}\nfinetuning: {config: retromae_msmarco}\n"
        "variants: {one: {}, two: {pretraining: {backbone_config: {hidden_size: 32}}}}\n"
    )
    trials = plan_ablation(AblationOptions("out"), read_configs([str(tmp_path / "mine.yaml")]))
    assert trials[0].pretraining is not None
    options, _ = trials[0].pretraining
    assert (options.backbone, options.backbone_config, options.vocab_size) == ("me/mine", None, None)
    check_declarations(trials[:1])
    with pytest.raises(InputError, match="'two' cannot be pre-trained: backbone_config is of an encoder from scratch"):
        check_declarations(trials)


def test_a_flag_of_other_sweeps_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["sweep", "--config", "simlm_rates", "--values", "1", "2"])
    assert stopped.value.code == 2
    assert "--values is not of an ablation" in capsys.readouterr().err


def write_sources(folder: Path) -> None:
    """What the recipes read, at the places that they name, tiny."""
    data = write_dataset(folder / "build" / "msmarco")
    shutil.copy(data / "qrels" / "test.tsv", data / "qrels" / "dev.tsv")
    passages = [json.loads(line) for line in (data / "corpus.jsonl").read_text().splitlines()]
    for row in passages:
        words = f"{row['title']} {row['text']}"
        row |= {"text": " ".join([words] * 2), "neighbour": words, "queries": [words], "continuation": words}
    for name in ("marco", "marco_written", "words", "queries_contexts", "wiki"):
        write_lines(folder / "build" / f"{name}.jsonl", passages)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_an_ablation_of_a_paper_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_sources(tmp_path)
    encoder = str(write_encoder(tmp_path / "encoder"))
    recipe = read_configs([name])
    generator = tiny_config().to_dict()
    tiny = {**FEW, "backbone": encoder, "backbone_config": None, "tokenizer": None, "max_length": 32}
    tiny |= {"gradient_accumulation_steps": 1, "warmup_steps": 0}
    stages = {stage: {**FEW, "passages": 2, "chunk": None} for stage in ("retriever1", "retriever2")}
    for stage, section in plan(name)[0].pipeline.__dict__.items():
        if stage in stages and section is None:
            del stages[stage]
    variants: dict[str, Any] = {}
    for variant, changes in recipe["variants"].items():
        changed = {part: given and dict(given) for part, given in (changes or {}).items()}
        if (changed.get("pretraining") or recipe.get("pretraining")) and changed.get("pretraining", {}) is not None:
            options = pretraining_of(name, variant)
            trained = {**changed.get("pretraining", {}), **tiny, "corpus": f"{options.corpus}.jsonl"}
            if options.method == "simlm":
                trained["generator"] = generator
            changed["pretraining"] = trained
        else:
            changed["finetuning"] = {"model": encoder}
        variants[variant] = changed
    (tmp_path / "tiny.yaml").write_text(json.dumps({"finetuning": stages | LENGTHS, "variants": variants}))
    words = ["sweep", "--config", name, "--config", "tiny.yaml", "--out", "out"]
    main(words)
    shown = capsys.readouterr().out
    assert all(f"| {variant} | 0." in shown for variant in variants)
    facts = json.loads((tmp_path / "out" / "sweep.json").read_text())
    assert facts["variants"].keys() == variants.keys()
    assert {"sweep.md", "sweep.png"} <= {path.name for path in (tmp_path / "out").iterdir()}
    written = (tmp_path / "out" / "sweep.md").read_text()
    assert ("Bottleneck gap:" in written) is ("| bottleneck gap |" in written), "it is explained where it is shown"
    shutil.rmtree(lost := tmp_path / "out" / plan(name)[-1].place)
    main([*words, "--only", lost.name])  # as --side_by_side starts a trial
    assert any(lost.glob("evaluation-dev/*.json"))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.safetensors")}
    main(words)
    assert before == {path: path.stat().st_mtime_ns for path in before}, "what is done is not done again"


def pretraining_of(name: str, variant: str) -> PretrainingOptions:
    """What a variant of a recipe is pre-trained with."""
    found = next(trial for trial in plan(name) if trial.variant == variant)
    assert found.pretraining is not None
    return found.pretraining[0]
