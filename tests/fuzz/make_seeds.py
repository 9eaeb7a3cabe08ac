#!/usr/bin/env python3
"""Writes the first inputs of a fuzz target, cut from the test data to a size that fuzzes well.

usage: make_seeds.py safetensors|gguf|config|tokenizer|chat_template|reply_parser|chat_options OUT

The forms are those of input.h: a file's head ends with the file's size in six bytes, texts are
separated by zero bytes.
"""

import json
import pathlib
import struct
import sys

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"


def head(path, size):
    """The first bytes of a file, then how long it is."""
    with open(path, "rb") as file:
        return file.read(size) + struct.pack("<Q", path.stat().st_size)[:6]


def safetensors():
    for path in sorted(DATA.rglob("*.safetensors")):
        with open(path, "rb") as file:
            size = struct.unpack("<Q", file.read(8))[0]
        yield head(path, 8 + size)


def gguf_text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def small_gguf():
    """One tensor, and every kind of metadata value."""
    values = [("general.architecture", 8, gguf_text("llama")), ("general.alignment", 4, struct.pack("<I", 32)),
              ("a", 0, b"\1"), ("b", 1, b"\1"), ("c", 2, b"\1\0"), ("d", 3, b"\1\0"), ("e", 5, b"\1\0\0\0"),
              ("f", 6, struct.pack("<f", 1)), ("g", 7, b"\1"), ("h", 10, struct.pack("<Q", 1)),
              ("i", 11, struct.pack("<q", -1)), ("j", 12, struct.pack("<d", 1)),
              ("tokenizer.ggml.model", 8, gguf_text("gpt2")),
              ("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 2) + gguf_text("a") + gguf_text("b")),
              ("tokenizer.ggml.token_type", 9, struct.pack("<IQii", 5, 2, 1, 3)),
              ("k", 9, struct.pack("<IQIQB", 9, 1, 7, 1, 1))]
    values += [(f"llama.{key}", 4, struct.pack("<I", value)) for key, value in (
        ("block_count", 1), ("context_length", 64), ("embedding_length", 32), ("feed_forward_length", 32),
        ("attention.head_count", 2), ("attention.head_count_kv", 1))]
    values += [("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)),
               ("llama.rope.freq_base", 6, struct.pack("<f", 1e4))]
    data = b"GGUF" + struct.pack("<IQQ", 3, 1, len(values))
    for key, kind, value in values:
        data += gguf_text(key) + struct.pack("<I", kind) + value
    data += gguf_text("token_embd.weight") + struct.pack("<IQQIQ", 2, 32, 2, 0, 0)
    return data + struct.pack("<Q", (len(data) + 31) // 32 * 32 + 256)[:6]


def gguf():
    yield small_gguf()
    for path in sorted(DATA.rglob("*.gguf")):
        yield head(path, 100_000)


def config():
    for path in sorted(DATA.rglob("config.json")):
        parts = [path, path.parent / "generation_config.json", path.parent / "tokenizer_config.json"]
        yield b"\0".join(part.read_bytes() if part.exists() else b"" for part in parts)


def tokenizer():
    path = DATA / "models/nano-qwen3/target/tokenizer.json"
    whole = json.loads(path.read_text())
    model = whole["model"]
    model["vocab"] = {token: i for token, i in model["vocab"].items() if i < 320}
    model["merges"] = model["merges"][:50]
    known = model["vocab"]
    model["merges"] = [pair for pair in model["merges"]
                       if "".join(pair.split(" ") if isinstance(pair, str) else pair) in known]
    config_bytes = (path.parent / "tokenizer_config.json").read_bytes()
    yield json.dumps(whole).encode() + b"\0" + config_bytes
    small = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
             "pre_tokenizer": None, "post_processor": None, "decoder": None,
             "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}}
    yield json.dumps(small).encode() + b"\0"
    small["normalizer"] = {"type": "NFC"}
    small["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                              "use_regex": True}
    small["decoder"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    small["added_tokens"] = [{"id": 3, "content": "<|im_end|>", "single_word": False, "lstrip": False,
                              "rstrip": False, "normalized": False, "special": True}]
    yield json.dumps(small).encode() + b"\0{}"


def chat_template():
    path = DATA / "models/nano-qwen3/target/tokenizer_config.json"
    template = json.loads(path.read_text()).get("chat_template")
    if isinstance(template, str):
        yield template.encode() + b'\0{"enable_thinking": false}'
    yield (b"{% for message in messages %}{{ '<|' + message['role'] + '|>' + message.content | trim }}"
           b"{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}\0")
    yield (b"{% macro f(x) %}{{ x.split('</think>')[-1].lstrip('\\n') }}{% endmacro %}"
           b"{%- set ns = namespace(n=0) %}{% for m in messages[::-1] %}{% set ns.n = ns.n + loop.index0 %}"
           b"{{ f(m.content) }}{{ m | tojson }}{% if not loop.last %}{{ bos_token }}{% endif %}{% endfor %}"
           b"{{ raise_exception('no') if ns.n > 100 }}\0{\"tools\": []}")


TOOLS = json.dumps([{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
    "a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "array"}, "d": {"type": "boolean"}}}}}]).encode()


def reply_parser():
    for reply in (
            b"0plain <think>", b"1<think>\nI see.\n</think>\n\nYes.\n",
            b'1A.<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\n',
            b"1<tool_call><function=f><parameter=a>\n12\n</parameter><parameter=b>x</parameter></function></tool_call>",
            b"7I see.\n</think>\n\nYes.", b"2<|channel>thought\nHm.<channel|>Yes.",
            b'2<|tool_call>call:f{a:1,b:<|"|>x<|"|>,c:[1,{k:true}]}<tool_call|>',
            b"3<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
            b'3<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>',
            b'4<|python_tag|>{"name": "f", "parameters": {"a": 1}}', b'4{"name": "f", "parameters": {}}',
            b"5<think>Hm.</think><|tool_call_start|>[f(a=1, b='x', c=[None, True])]<|tool_call_end|>Yes."):
        yield reply + b"\0" + TOOLS


def chat_options():
    yield b'{"enable_thinking": false, "reasoning_effort": "high"}\0' + TOOLS + b'\0[{"title": "a"}]\0' \
          b"{%- if enable_thinking is defined %}{{ tools | tojson }}{# x #}{% endif %}{{ 'x' }}{% raw %}x{% endraw %}"
    yield b"[]\0[{}]\0{}\0{{"


KINDS = {kind.__name__: kind for kind in (safetensors, gguf, config, tokenizer, chat_template, reply_parser,
                                          chat_options)}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in KINDS:
        print(__doc__.strip())
        return 2
    out = pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(KINDS[sys.argv[1]]()):
        (out / f"seed-{number}").write_bytes(seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
