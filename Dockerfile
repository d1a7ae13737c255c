# docker build -t hf_dense . && docker run --rm -v "$PWD/build:/hf_dense/build" hf_dense               runs the demo
# docker run --rm --gpus all -v "$PWD:/work" -w /work hf_dense hf-dense adapt my_documents --out adapted
# With the address of an index of CPU-only builds of torch the image is several gigabytes smaller:
# docker build --build-arg TORCH_INDEX=ADDRESS -t hf_dense .
FROM python:3.11-slim
RUN apt-get update && apt-get install --yes --no-install-recommends git make && rm -rf /var/lib/apt/lists/*
WORKDIR /hf_dense
ARG TORCH_INDEX
COPY constraints.txt .
RUN python -m venv .venv && \
    if [ -n "$TORCH_INDEX" ]; then .venv/bin/pip install --index-url "$TORCH_INDEX" "$(grep '^torch==' constraints.txt)"; fi
COPY . .
RUN make .venv/.installed
ENV PATH=/hf_dense/.venv/bin:$PATH
CMD ["make", "demo"]
