"""llama.cpp as a child of the engine's benchmark: a line of JSON in, a line of JSON out.

``python -m tests.bench.torch_llama GGUF THREADS SLOTS CONTEXT_TOKENS``; xllamacpp must be importable.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def main() -> None:
    """Serve until standard input ends."""
    # The library writes its log to standard output: answers go to a copy, and it to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    gguf, threads, slots, context_tokens = sys.argv[1], *map(int, sys.argv[2:5])
    server = _server(gguf, threads, slots, context_tokens)
    with ThreadPoolExecutor(slots) as pool:
        for line in sys.stdin:
            asked = json.loads(line)
            started_s, cpu_s = time.perf_counter(), time.process_time()
            futures = [pool.submit(_answer, server, prompt, asked["tokens"]) for prompt in asked["prompts"]]
            times = [future.result() for future in futures]
            done = {"started_s": started_s, "times_s": times, "cpu_s": time.process_time() - cpu_s}
            answers.write(json.dumps(done) + "\n")
            answers.flush()


def _server(gguf: str, threads: int, slots: int, context_tokens: int) -> Any:
    import xllamacpp  # type: ignore[import-not-found]

    params = xllamacpp.CommonParams()
    params.model.path = gguf
    params.n_ctx = slots * context_tokens
    params.n_parallel = slots
    params.n_batch = params.n_ubatch = 512
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    return xllamacpp.Server(params)


def _answer(server: Any, prompt: list[int], tokens: int) -> list[float]:
    """When each token came: spread evenly between the first chunk and the last.

    Chunks are text, and half a character is none, so there may be fewer of them than tokens.
    """
    times: list[float] = []
    made = 0

    def note(chunk: Any) -> bool:
        nonlocal made
        if "error" in chunk:
            raise RuntimeError(str(chunk["error"]))
        times.append(time.perf_counter())
        made = chunk.get("usage", {}).get("completion_tokens", made)
        return False

    server.handle_completions(
        {
            "prompt": prompt,
            "max_tokens": tokens,
            "stream": True,
            "ignore_eos": True,
            "cache_prompt": False,
            "temperature": 0.0,
        },
        note,
    )
    if made != tokens:
        raise RuntimeError(f"llama.cpp made {made} tokens, asked were {tokens}")
    # The last chunk is the one that says why it ended; it comes with the one before it.
    first, last = times[0], times[-1]
    return [first + (last - first) * place / (tokens - 1) for place in range(tokens)]


if __name__ == "__main__":
    main()
