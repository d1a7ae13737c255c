"""Pre-training an encoder through its bottleneck."""
