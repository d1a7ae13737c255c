"""The verb `hf-dense serve`."""

from __future__ import annotations

import argparse
import os
import socket
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from hf_dense.commands.reranking import add_reranking_arguments, check_reranking
from hf_dense.errors import InputError

SUMMARY: Final = "Ask two retrievers side by side in the browser, and judge what they find."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the verb takes."""
    parser.add_argument(
        "directory", type=Path, metavar="DIR", help="what hf-dense adapt wrote, or a retriever with its index"
    )
    parser.add_argument("--against", type=Path, metavar="DIR2", help="another one, to be shown on the right")
    add_reranking_arguments(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine)")
    parser.add_argument("--port", type=int, default=7860, help="0 takes a free one (default: 7860)")
    parser.add_argument(
        "--judgements", type=Path, metavar="FILE", help=".jsonl that receives them (default: DIR-judgements.jsonl)"
    )


def run(arguments: argparse.Namespace) -> None:
    """Serve the page until it is stopped.

    Raises:
        InputError: gradio is not installed, the address is taken, or see `hf_dense.serving.page.build_page`.
    """
    if find_spec("gradio") is None:
        raise InputError("The page needs the package gradio; install it with pip install 'hf_dense[serve]'.")
    check_reranking(arguments)
    port = free_port(arguments.host, arguments.port)
    from transformers.utils.logging import disable_progress_bar

    from hf_dense.search.reranking import RERANK_DEPTH
    from hf_dense.serving.judgements import judgements_of
    from hf_dense.serving.page import build_page

    disable_progress_bar()
    os.environ["no_proxy"] = "*"  # gradio asks the page whether it is there, and nothing asks other servers
    depth = arguments.rerank_depth or RERANK_DEPTH
    page = build_page(arguments.directory, arguments.against, arguments.judgements, arguments.rerank, depth)
    judgements = arguments.judgements or judgements_of(arguments.directory)
    host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host  # as gradio takes addresses of IPv6
    none = 1  # byte of a file that is sent here, as no part of the page asks for one
    page.launch(
        server_name=host,
        server_port=port,
        quiet=True,
        footer_links=[],
        ssr_mode=False,
        prevent_thread_lock=True,
        max_file_size=none,
    )
    print(f"{page.local_url} is ready, judgements go to {judgements}; Ctrl-C ends it.", flush=True)
    page.block_thread()


def free_port(host: str, port: int) -> int:
    """The port, on which this machine can listen; a free one where it is 0.

    Raises:
        InputError: it cannot.
    """
    try:
        port = _tried(host, port)
        return _tried("127.0.0.1", port)  # where gradio wants it too, whatever the address is
    except (OSError, OverflowError, TypeError) as error:
        raise InputError(
            f"Nothing can be served at {host}, port {port} ({getattr(error, 'strerror', None) or error}); name another "
            "--port or --host."
        ) from error


def _tried(host: str, port: int) -> int:
    """The port, after it was listened on for a moment."""
    with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        return int(server.getsockname()[1])
