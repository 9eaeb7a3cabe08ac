#!/usr/bin/env python3
"""Writes a GGUF with random weights in the shape of Qwen3-0.6B, for benches of size and speed.

usage: random_gguf.py OUT [--kind q8_0|q4_0|q4_1|q4_k] [--size GB] [--seed N]

The number of layers follows from the size (0.6 GB of q8_0 is about the published model). The same
arguments give the same bytes. Needs numpy.
"""

import argparse
import os
import struct
import sys

import numpy

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER, VOCABULARY = 1024, 16, 8, 128, 3072, 151936
ALIGNMENT = 32
WEIGHT_DEVIATION = 0.02  # about what trained models have
# kind: (ggml type, bytes per 32 values, general.file_type)
KINDS = {"q8_0": (8, 34, 7), "q4_0": (2, 18, 2), "q4_1": (3, 20, 3), "q4_k": (12, 18, 15)}
GGML_F32 = 0
U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, kind, value):
    """One metadata entry."""
    head = text(key) + struct.pack("<I", kind)
    if kind == STRING:
        return head + text(value)
    return head + struct.pack({U32: "<I", F32: "<f", BOOL: "<?"}[kind], value)


def array(key, kind, values):
    head = text(key) + struct.pack("<IIQ", ARRAY, kind, len(values))
    if kind == STRING:
        return head + b"".join(text(value) for value in values)
    return head + struct.pack(f"<{len(values)}i", *values)


def byte_characters():
    """The 256 characters that stand for bytes in byte-level vocabularies, by byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    characters, extra = [], 0
    for byte in range(256):
        if byte in printable:
            characters.append(chr(byte))
        else:
            characters.append(chr(256 + extra))
            extra += 1
    return characters


def vocabulary():
    """(tokens, types, merges): all bytes, a few merges, filler, one end token."""
    tokens, merges = byte_characters(), []
    for pair in ("Ġ t", "h e", "i n", "Ġt he", "in g", "a n", "an d", "e r"):
        left, right = pair.split(" ")
        merges.append(pair)
        tokens.append(left + right)
    tokens += [f"filler{n}" for n in range(VOCABULARY - len(tokens) - 1)]
    types = [1] * len(tokens)
    return tokens + ["<|endoftext|>"], types + [3], merges


def metadata(layers, file_type):
    tokens, types, merges = vocabulary()
    entries = [
        entry("general.architecture", STRING, "qwen3"),
        entry("general.name", STRING, "random"),
        entry("general.alignment", U32, ALIGNMENT),
        entry("general.file_type", U32, file_type),
        entry("general.quantization_version", U32, 2),
        entry("qwen3.block_count", U32, layers),
        entry("qwen3.context_length", U32, 8192),
        entry("qwen3.embedding_length", U32, HIDDEN),
        entry("qwen3.feed_forward_length", U32, INNER),
        entry("qwen3.attention.head_count", U32, HEADS),
        entry("qwen3.attention.head_count_kv", U32, KV_HEADS),
        entry("qwen3.attention.key_length", U32, HEAD_DIM),
        entry("qwen3.attention.value_length", U32, HEAD_DIM),
        entry("qwen3.attention.layer_norm_rms_epsilon", F32, 1e-6),
        entry("qwen3.rope.freq_base", F32, 1e6),
        entry("tokenizer.ggml.model", STRING, "gpt2"),
        entry("tokenizer.ggml.pre", STRING, "qwen2"),
        array("tokenizer.ggml.tokens", STRING, tokens),
        array("tokenizer.ggml.token_type", I32, types),
        array("tokenizer.ggml.merges", STRING, merges),
        entry("tokenizer.ggml.eos_token_id", U32, VOCABULARY - 1),
        entry("tokenizer.ggml.add_bos_token", BOOL, False),
    ]
    return len(entries), b"".join(entries)


def layer_tensors(n):
    """[(name, rows, columns)] of one layer; rows None: a vector of floats."""
    return [(f"blk.{n}.{name}.weight", rows, columns) for name, rows, columns in (
        ("attn_norm", None, HIDDEN),
        ("attn_q", HEADS * HEAD_DIM, HIDDEN),
        ("attn_k", KV_HEADS * HEAD_DIM, HIDDEN),
        ("attn_v", KV_HEADS * HEAD_DIM, HIDDEN),
        ("attn_q_norm", None, HEAD_DIM),
        ("attn_k_norm", None, HEAD_DIM),
        ("attn_output", HIDDEN, HEADS * HEAD_DIM),
        ("ffn_norm", None, HIDDEN),
        ("ffn_gate", INNER, HIDDEN),
        ("ffn_up", INNER, HIDDEN),
        ("ffn_down", HIDDEN, INNER))]


def tensors(layers):
    listed = [("token_embd.weight", VOCABULARY, HIDDEN)]
    for n in range(layers):
        listed += layer_tensors(n)
    return listed + [("output_norm.weight", None, HIDDEN)]


def size_of(rows, columns, block_bytes):
    return 4 * columns if rows is None else rows * columns // 32 * block_bytes


def layers_for(size_gb, block_bytes):
    per_layer = sum(size_of(r, c, block_bytes) for _, r, c in layer_tensors(0))
    rest = size_gb * 1e9 - size_of(VOCABULARY, HIDDEN, block_bytes)
    return max(1, -int(-rest // per_layer))


def random_q4_k(random, count):
    """Blocks of 256 values: two scales, then factors and codes, which are spread evenly."""
    blocks = random.integers(0, 256, (count, 144), dtype=numpy.uint8)
    # factor * code - 7.5 * factor has a deviation of about 260.
    scales = (WEIGHT_DEVIATION / 260 * random.uniform(0.8, 1.2, count)).astype("<f2")
    lowest = (7.5 * scales.astype(numpy.float32)).astype("<f2")
    blocks[:, :2] = scales.view(numpy.uint8).reshape(count, 2)
    blocks[:, 2:4] = lowest.view(numpy.uint8).reshape(count, 2)
    return blocks.tobytes()


def random_blocks(random, kind, rows, columns):
    """The bytes of a matrix whose values have about WEIGHT_DEVIATION."""
    if kind == "q4_k":
        return random_q4_k(random, rows * columns // 256)
    count = rows * columns // 32
    blocks = random.integers(0, 256, (count, KINDS[kind][1]), dtype=numpy.uint8)
    largest = 127.0 if kind == "q8_0" else 8.0
    # Codes are spread evenly, so their deviation is largest / sqrt(3).
    scale = WEIGHT_DEVIATION * 3 ** 0.5 / largest
    scales = (scale * random.uniform(0.8, 1.2, count)).astype("<f2")
    blocks[:, :2] = scales.view(numpy.uint8).reshape(count, 2)
    if kind == "q8_0":
        blocks[:, 2:][blocks[:, 2:] == 128] = 0  # -128 is no code of this kind
    if kind == "q4_1":
        lowest = (-7.5 * scales.astype(numpy.float32)).astype("<f2")
        blocks[:, 2:4] = lowest.view(numpy.uint8).reshape(count, 2)
    return blocks.tobytes()


def write(path, kind, size_gb, seed=0):
    """Writes the file (atomically) and returns its number of layers."""
    ggml_type, block_bytes, file_type = KINDS[kind]
    layers = layers_for(size_gb, block_bytes)
    listed = tensors(layers)
    count, entries = metadata(layers, file_type)
    infos, offset = b"", 0
    for name, rows, columns in listed:
        shape = [columns] if rows is None else [columns, rows]
        infos += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        infos += struct.pack("<IQ", GGML_F32 if rows is None else ggml_type, offset)
        offset += -(-size_of(rows, columns, block_bytes) // ALIGNMENT) * ALIGNMENT
    random = numpy.random.default_rng(seed)
    part = f"{path}.part"
    with open(part, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(listed), count) + entries + infos)
        for _, rows, columns in listed:
            file.write(b"\0" * (-file.tell() % ALIGNMENT))
            if rows is None:
                file.write(numpy.ones(columns, "<f4").tobytes())
            else:
                file.write(random_blocks(random, kind, rows, columns))
        file.write(b"\0" * (-file.tell() % ALIGNMENT))
    os.replace(part, path)
    return layers


def main():
    parser = argparse.ArgumentParser(description=__doc__, usage=argparse.SUPPRESS,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--kind", choices=KINDS, default="q8_0")
    parser.add_argument("--size", type=float, default=0.6, metavar="GB")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    layers = write(arguments.out, arguments.kind, arguments.size, arguments.seed)
    print(f"{arguments.out}: {layers} layers, {os.path.getsize(arguments.out) / 1e9:.2f} GB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
