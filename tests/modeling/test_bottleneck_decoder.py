from __future__ import annotations

from dataclasses import asdict

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM
from transformers.models.bert.modeling_bert import BertLayer

from hf_dense import METHODS, Decoder, SEEDConfig, View
from hf_dense.modeling.bottleneck_backbones import FULL, family_of
from hf_dense.modeling.bottleneck_decoder import (
    Attention,
    Block,
    BottleneckEntry,
    DecoderStack,
    VocabularyHead,
)
from hf_dense.modeling.bottleneck_layout import FlatRows, LayerMask, Rows

BATCH, LENGTH, DIM = 2, 6, 32
BERT = BertConfig(
    vocab_size=100,
    hidden_size=DIM,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=48,
    max_position_embeddings=16,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    attn_implementation="sdpa",
)
SHAPE = family_of(BERT).shape(BERT)
PRE = Decoder(
    View(select="none", labels="next"),
    norm="pre",
    entry="cross_attention",
    inputs="own_embeddings",
    attention="causal:2",
)
TWO_STREAMS = Decoder(View(select="none", labels="every"), layers=1, stream="bottleneck", attention="sampled:0.5")

BERT_NAMES = {
    "attention.query": "attention.self.query",
    "attention.key": "attention.self.key",
    "attention.value": "attention.self.value",
    "attention.output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "output_norm": "output.LayerNorm",
}


def randomised(module: nn.Module, seed: int = 0) -> nn.Module:
    """`module` in double precision with every parameter random, biases and norms too."""
    generator = torch.Generator().manual_seed(seed)
    module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.3)
    return module


def inputs(seed: int = 1) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Stream and memory (rows, dim), mask and bottlenecks; the mask is random, every row sees something."""
    generator = torch.Generator().manual_seed(seed)
    stream, memory = torch.randn(2, BATCH * LENGTH, DIM, generator=generator, dtype=torch.float64)
    bottleneck = torch.randn(BATCH, DIM, generator=generator, dtype=torch.float64)
    mask = torch.rand(BATCH, 1, LENGTH, LENGTH, generator=generator) < 0.5
    mask[..., 0] = True
    return stream, memory, mask, bottleneck


LAYOUT = FlatRows({"input_ids": torch.ones(BATCH, LENGTH, dtype=torch.int64)})


def layer_mask(mask: Tensor) -> LayerMask:
    """Texts without padding, of which each position sees what the mask says."""
    return LayerMask(LAYOUT.groups, LAYOUT.groups, [mask], LAYOUT.text)


def plain_attention(attention: Attention, stream: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    """Attention in loops, one text, head and position at a time."""
    size = DIM // attention.heads
    rows = []
    for b in range(BATCH):
        for i in range(LENGTH):
            heads = []
            for h in range(attention.heads):
                part = slice(h * size, (h + 1) * size)
                query = attention.query(stream[b * LENGTH + i])[part]
                seen = [j for j in range(LENGTH) if mask[b, 0, i, j]]
                scores = torch.stack([query @ attention.key(memory[b * LENGTH + j])[part] for j in seen]) / size**0.5
                weights = scores.exp() / scores.exp().sum()
                values = [attention.value(memory[b * LENGTH + j])[part] for j in seen]
                heads.append(sum(w * value for w, value in zip(weights, values, strict=True)))
            rows.append(attention.output(torch.cat(heads)))
    return torch.stack(rows)


def plain_norm(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias


def plain_expand(block: Block, x: Tensor) -> Tensor:
    up = block.up(x)
    return block.down(up * 0.5 * (1 + torch.erf(up / 2**0.5)))


def test_post_norm_block_on_one_stream_is_the_bert_layer() -> None:
    block, layer = randomised(Block(SHAPE, Decoder())), BertLayer(BERT).double().eval()
    weights = block.state_dict()
    layer.load_state_dict({f"{BERT_NAMES[n.rpartition('.')[0]]}.{n.rpartition('.')[2]}": v for n, v in weights.items()})
    stream, _, mask, bottleneck = inputs()
    for visible in (mask, torch.ones_like(mask)):
        expected = layer(stream.view(BATCH, LENGTH, DIM), visible).flatten(0, 1)
        torch.testing.assert_close(block(stream, stream, layer_mask(visible), bottleneck), expected, atol=1e-6, rtol=0)
    assert not torch.allclose(block(stream, stream, layer_mask(mask), bottleneck), expected)


def test_two_stream_block_equals_the_loop() -> None:
    block = randomised(Block(SHAPE, TWO_STREAMS))
    stream, memory, mask, bottleneck = inputs()
    middle = plain_norm(block.attention_norm, stream + plain_attention(block.attention, stream, memory, mask))
    expected = plain_norm(block.output_norm, middle + plain_expand(block, middle))
    torch.testing.assert_close(block(stream, memory, layer_mask(mask), bottleneck), expected, atol=1e-9, rtol=0)


def test_pre_norm_block_equals_the_loop() -> None:
    block = randomised(Block(SHAPE, PRE))
    assert block.entry is not None
    stream, _, mask, bottleneck = inputs()
    seen = plain_norm(block.attention_norm, stream)
    expected = stream + plain_attention(block.attention, seen, seen, mask)
    expected = expected + block.entry.output(block.entry.value(bottleneck)).repeat_interleave(LENGTH, dim=0)
    expected = expected + plain_expand(block, plain_norm(block.output_norm, expected))
    torch.testing.assert_close(block(stream, stream, layer_mask(mask), bottleneck), expected, atol=1e-9, rtol=0)


def test_bottleneck_entry_is_attention_over_one_key() -> None:
    entry = randomised(BottleneckEntry(SHAPE))
    attention = randomised(nn.MultiheadAttention(DIM, num_heads=4, batch_first=True), seed=5)
    with torch.no_grad():
        attention.in_proj_weight[2 * DIM :] = entry.value.weight
        attention.in_proj_bias[2 * DIM :] = entry.value.bias
        attention.out_proj.load_state_dict(entry.output.state_dict())
    stream, _, _, bottleneck = inputs()
    expected, _ = attention(stream.view(BATCH, LENGTH, DIM), bottleneck[:, None], bottleneck[:, None])
    given = entry(bottleneck)[:, None].expand(-1, LENGTH, -1)
    torch.testing.assert_close(given, expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("decoder", [Decoder(layers=2), PRE], ids=["backbone", "pre"])
def test_stack_runs_its_layers_in_turn(decoder: Decoder) -> None:
    stack = randomised(DecoderStack(SHAPE, decoder))
    stream, _, mask, bottleneck = inputs()
    expected = stream
    for layer in stack.layers:
        expected = layer(expected, expected, layer_mask(mask), bottleneck)
    if decoder.norm == "pre":
        expected = plain_norm(stack.norm, expected)

    def masks(kind: str, read: Rows | None) -> LayerMask:
        assert kind == FULL
        return layer_mask(mask) if read is None else LAYOUT.mask(read=read)

    torch.testing.assert_close(stack(stream, stream, masks, bottleneck), expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("decoder", [Decoder(layers=2), PRE, TWO_STREAMS], ids=["backbone", "pre", "two streams"])
def test_of_the_last_layer_only_what_is_read_is_computed(decoder: Decoder) -> None:
    stack = randomised(DecoderStack(SHAPE, decoder))
    stream, memory, _, bottleneck = inputs()
    memory = memory if decoder is TWO_STREAMS else stream
    read = LAYOUT.places.rows(torch.arange(BATCH * LENGTH) % 3 == 0)
    expanded = []
    stack.layers[-1].up.register_forward_hook(lambda _module, given, _output: expanded.append(len(given[0])))

    def masks(kind: str, rows: Rows | None) -> LayerMask:
        return LAYOUT.mask(read=rows)

    every = stack(stream, memory, masks, bottleneck)
    part = stack(stream, memory, masks, bottleneck, read)
    torch.testing.assert_close(part, every[read.at], atol=1e-9, rtol=0)
    assert expanded == [BATCH * LENGTH, len(read.at)]


def test_own_embeddings_add_positions_and_normalise() -> None:
    embeddings = randomised(DecoderStack(SHAPE, PRE)).embeddings
    words, *_ = inputs()
    expected = plain_norm(embeddings.norm, words + embeddings.positions.weight[:LENGTH].repeat(BATCH, 1))
    torch.testing.assert_close(embeddings(words, LAYOUT.positions), expected, atol=1e-9, rtol=0)


def test_vocabulary_head_is_the_head_of_bert() -> None:
    source = randomised(BertForMaskedLM(BERT))
    head = VocabularyHead(SHAPE, BERT.vocab_size).double()
    state = source.state_dict()
    head.load_state_dict({ours: state[theirs] for ours, theirs in family_of(BERT).head.items()})
    hidden, *_ = inputs()
    scores = head(hidden) @ source.get_input_embeddings().weight.T + head.bias
    torch.testing.assert_close(scores, source.cls(hidden), atol=1e-9, rtol=0)


def test_gpt2_layers_drop_their_input_and_add_little_at_first() -> None:
    view = View(select="none", labels="next")
    decoder = Decoder(view, layers=3, norm="gpt2", attention="causal:3")
    stack = DecoderStack(SHAPE, decoder)
    assert stack.norm is not None
    assert all(layer.pre for layer in stack.layers)
    changes = {"view": asdict(view), "layers": 3, "attention": "causal:3", "inputs": "embeddings", "head": "mlm"}
    for norm, scale in (("pre", 1.0), ("gpt2", 6**-0.5)):
        torch.manual_seed(0)
        declared = {"decoder": {**changes, "entry": "first", "norm": norm}}
        model = METHODS["seed_encoder"].pretraining(SEEDConfig(backbone_config=BERT.to_dict(), decoders=declared))
        for layer in model.decoders["decoder"].layers:
            for part, expected in ((layer.up, 1.0), (layer.down, scale), (layer.attention.output, scale)):
                assert part.weight.std().item() / 0.02 == pytest.approx(expected, rel=0.1)
    dropping = DecoderStack(family_of(BERT).shape(BertConfig(hidden_size=DIM, num_attention_heads=4)), decoder)
    assert dropping.input_dropout.p == 0.1
    assert DecoderStack(SHAPE, PRE).input_dropout.p == 0.0
