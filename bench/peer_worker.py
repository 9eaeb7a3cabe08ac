#!/usr/bin/env python3
"""Holds one model in llama.cpp and measures it on request; started by bench/peer_llama_cpp.

usage: peer_worker.py MODEL.gguf mmap|read

Reads one JSON object per line, answers with one: {"threads": N, "batch_threads": N, "plain": runs,
"pass16": runs, "prefill": runs} gives {"plain_ms", "pass16_ms", "prefill_ms"} of those that had runs:
medians, and with "_min" the shortest. Every measurement starts from an empty context. All rows of the 16-token pass give logits,
as a verification needs; prefill is 512 tokens with logits for the last one.
"""

import ctypes
import json
import statistics
import sys
import time

import llama_cpp

CONTEXT = 1024
PREFILL = 512


class Peer:
    def __init__(self, path, mmap):
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        params.load_mode = (llama_cpp.LLAMA_LOAD_MODE_MMAP if mmap else
                            llama_cpp.LLAMA_LOAD_MODE_NONE)
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        context = llama_cpp.llama_context_default_params()
        context.n_ctx = CONTEXT
        context.n_batch = context.n_ubatch = PREFILL
        self.context = llama_cpp.llama_init_from_model(self.model, context)
        if not self.context:
            raise SystemExit(f"llama.cpp cannot make a context for {path}")
        self.memory = llama_cpp.llama_get_memory(self.context)
        vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.tokens = min(llama_cpp.llama_vocab_n_tokens(vocabulary), 20000)
        self.batch = llama_cpp.llama_batch_init(PREFILL, 0, 1)

    def pass_ms(self, rows, all_logits):
        """One decode of `rows` tokens from an empty context."""
        llama_cpp.llama_memory_clear(self.memory, False)
        batch = self.batch
        batch.n_tokens = rows
        for i in range(rows):
            batch.token[i] = 100 + i * 37 % (self.tokens - 100)
            batch.pos[i] = i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = all_logits or i == rows - 1
        start = time.perf_counter()
        if llama_cpp.llama_decode(self.context, batch) != 0:
            raise SystemExit("llama_decode failed")
        llama_cpp.llama_synchronize(self.context)
        return (time.perf_counter() - start) * 1e3

    def measure(self, request):
        llama_cpp.llama_set_n_threads(self.context, request["threads"], request["batch_threads"])
        answer = {}
        for name, rows, all_logits in (("plain", 1, True), ("pass16", 16, True),
                                       ("prefill", PREFILL, False)):
            runs = request.get(name, 0)
            if runs:
                if rows < PREFILL:
                    self.pass_ms(rows, all_logits)  # threads and buffers of this shape
                times = [self.pass_ms(rows, all_logits) for _ in range(runs)]
                answer[f"{name}_ms"] = statistics.median(times)
                answer[f"{name}_ms_min"] = min(times)
        return answer


# Kept alive for as long as llama.cpp may call it.
silent = llama_cpp.llama_log_callback(lambda level, message, data: None)


def main():
    if len(sys.argv) != 3 or sys.argv[2] not in ("mmap", "read"):
        print(__doc__.strip())
        return 2
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    peer = Peer(sys.argv[1], sys.argv[2] == "mmap")
    print(json.dumps({"ready": True, "version": llama_cpp.__version__,
                      "system": llama_cpp.llama_print_system_info().decode().strip(" |")}),
          flush=True)
    for line in sys.stdin:
        print(json.dumps(peer.measure(json.loads(line))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
