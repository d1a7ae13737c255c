"""A method's declaration as a picture: what reads what, and what is predicted."""

from __future__ import annotations

from hf_dense.modeling.configuration_bottleneck import BottleneckConfig, Decoder, View

_LABELS = {
    "hidden": "hidden tokens",
    "every": "every token",
    "next": "next token",
    "replaced": "which tokens were replaced",
}
_FILLS = {"mask": "[MASK]", "bert": "80/10/10", "generator": "drawn by the generator"}


def diagram(config: BottleneckConfig) -> str:
    """The declaration as a Mermaid flow chart, which GitHub and the Hub draw.

    Args:
        config: of any method, with any changes.

    Returns:
        The chart's source, without the fence around it.

    >>> from hf_dense import RetroMAEConfig
    >>> print(diagram(RetroMAEConfig()).splitlines()[1].strip())
    encoder_view["text<br/>30 % hidden (80/10/10)"] --> encoder["encoder<br/>12 layers"]
    """
    lines = ["flowchart LR"]
    encoders, weights = config.encoder_specs, config.weights
    for name, encoder in encoders.items():
        lines.append(f'{name}_view["{_reads(encoder.view, None)}"] --> {name}["{_title(name)}<br/>{_depth(config)}"]')
        lines.append(f'{name} --> {name}_h(("[CLS]"))')
        lines.append(_loss(name, _LABELS[encoder.view.labels], weights[name]))
    for name, decoder in config.decoder_specs.items():
        if decoder.view is None:
            lines.append(f'{decoder.encoder} -- "states of layer {config.hidden_layers[name]}" --> {name}')
        else:
            lines.append(f'{name}_view["{_reads(decoder.view, encoders[decoder.encoder].view)}"] --> {name}')
        lines.append(f'{decoder.encoder}_h --> {name}["{_title(name)}<br/>{_describe(decoder)}"]')
        lines.append(_loss(name, _LABELS[config.views[config.scored[name]].labels], weights[name]))
    for loss, name in config.contrasts.items():
        lines.append(f'{name}_h --> {loss}_loss(["contrast with the batch<br/>weight {weights[loss]:g}"])')
    for loss, (name, _) in config.bags.items():
        lines.append(f'{name} --> {loss}_loss(["bag of words<br/>weight {weights[loss]:g}"])')
    return "\n    ".join(lines)


def _title(name: str) -> str:
    return name.replace("_", " ")


def _depth(config: BottleneckConfig) -> str:
    several = " (one encoder reads all)" if len(config.encoder_specs) > 1 else ""
    return f"{config.backbone.num_hidden_layers} layers{several}"


def _reads(view: View, seen: View | None) -> str:
    """What a view shows, and what it hides; `seen` is what the encoder of a decoder reads."""
    sources = " and ".join(_title(source) for source in view.sources)
    if view.select == "none":
        return f"{sources}<br/>nothing hidden"
    if view.select == "complement":
        assert seen is not None
        return f"{sources}<br/>the other {100 * (1 - seen.rate):g} % hidden ({_FILLS[view.fill]})"
    kind = {"random": "", "superset": ", the encoder's among them"}.get(view.select, ", keywords first")
    return f"{sources}<br/>{100 * view.rate:g} % hidden{kind} ({_FILLS[view.fill]})"


def _describe(decoder: Decoder) -> str:
    layers = f"{decoder.layers} layer{'s' if decoder.layers > 1 else ''}"
    kind, value = decoder.attention_kind, decoder.attention_value
    if kind == "causal":
        sees = f"sees {value:g} back" if value else "sees all before"
    elif kind == "sampled":
        sees = f"each position sees its own {100 * (1 - value):g} %"
    else:
        sees = "sees all"
    stream = "" if decoder.stream == "inputs" else "<br/>asks with [CLS] at every position"
    shared = f", those of {_title(decoder.shares)}" if decoder.shares else ""
    return f"{layers}{shared}, {sees}{stream}"


def _loss(name: str, what: str, weight: float) -> str:
    return f'{name} --> {name}_loss(["{what}<br/>weight {weight:g}"])'
