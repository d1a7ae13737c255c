"""The models: copied beside every checkpoint, so these files import only torch, transformers and each other."""

import transformers.models.auto.modeling_auto  # noqa: F401  # before any model, as registering imports them all
