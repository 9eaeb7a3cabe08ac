#!/usr/bin/env python3
"""Writes a DFlash draft (config.json and model.safetensors, BF16) as one GGUF file.

DFlash v1 and DFlash2 in z-lab's layout, and DFlash in the speculators layout. Tensors keep the folder's
names, or get llama.cpp's with --llama-names. Matrices become Q8_0 (or stay BF16 with --bf16), norms and
convolution kernels F32. The metadata is under "dflash."; dflash.target_layers counts the embedding as 0,
so it holds z-lab's layer ids plus one. d2t holds ids of the target. Needs numpy. The same input gives
the same bytes.
"""

import argparse
import json
import pathlib
import struct
import sys

import numpy as np

ALIGNMENT = 32
F32, Q8_0, I64, BF16 = 0, 8, 27, 30
U32, FLOAT32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9


def fail(message):
    sys.exit(f"make_draft_gguf: {message}")


LLAMA_LAYER_NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "attention_conv.base_kernel": "attn_conv_base",
    "attention_conv.kernel_projection.weight": "attn_conv_proj.weight",
    "mlp_conv.base_kernel": "ffn_conv_base",
    "mlp_conv.kernel_projection.weight": "ffn_conv_proj.weight",
}
LLAMA_NAMES = {
    "hidden_norm.weight": "enc.output_norm.weight",
    "norm.weight": "output_norm.weight",
    "embed_tokens.weight": "token_embd.weight",
    "lm_head.weight": "output.weight",
    "candidate_selector.hidden_projection.weight": "selector_hidden.weight",
    "candidate_selector.predecessor_codebook": "selector_predecessor.weight",
    "candidate_selector.successor_codebook": "selector_successor.weight",
}


def llama_name(name):
    if not name.startswith("layers."):
        return LLAMA_NAMES.get(name, name)
    layer, part = name.removeprefix("layers.").split(".", 1)
    return f"blk.{layer}.{LLAMA_LAYER_NAMES[part]}"


def read_tensors(path):
    """Name to array for every tensor of a .safetensors file but t2d: uint16 for BF16, int64 for I64."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name in ("__metadata__", "t2d"):
            continue
        kind = {"BF16": np.uint16, "I64": np.int64}.get(entry["dtype"])
        if kind is None or (kind == np.int64) != (name == "d2t"):
            fail(f"{path}: tensor {name} is {entry['dtype']}; BF16 is converted (I64 for d2t)")
        begin, end = entry["data_offsets"]
        raw = np.frombuffer(data[8 + length + begin : 8 + length + end], kind)
        tensors[name] = raw.reshape(entry["shape"])
    return tensors


def to_f32(bf16):
    return (bf16.astype(np.uint32) << 16).view(np.float32)


def to_q8_0(values):
    """Blocks of 32: a float16 scale and 32 int8. Codes are chosen for the rounded scale."""
    blocks = values.reshape(-1, 32)
    scale = (np.abs(blocks).max(axis=1) / 127).astype(np.float16)
    divisor = scale.astype(np.float32)
    divisor[divisor == 0] = 1
    codes = np.clip(np.rint(blocks / divisor[:, None]), -127, 127).astype(np.int8)
    out = np.empty((len(blocks), 34), np.uint8)
    out[:, :2] = scale.view(np.uint8).reshape(-1, 2)
    out[:, 2:] = codes.view(np.uint8)
    return out.tobytes()


def encode(bf16, keep_bf16):
    if bf16.dtype == np.int64:
        return I64, (bf16 + np.arange(len(bf16))).tobytes()
    if bf16.ndim != 2:
        return F32, to_f32(bf16).tobytes()
    if keep_bf16 or bf16.shape[-1] % 32:
        return BF16, bf16.tobytes()
    return Q8_0, to_q8_0(to_f32(bf16))


def string(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, content):
    if kind == STRING:
        return string(content)
    return struct.pack({U32: "<I", FLOAT32: "<f", BOOL: "<?"}[kind], content)


def key(name, kind, content):
    return string(name) + struct.pack("<I", kind) + value(kind, content)


def key_list(name, kind, content):
    head = string(name) + struct.pack("<IIQ", ARRAY, kind, len(content))
    return head + b"".join(value(kind, item) for item in content)


def rope_keys(config):
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    keys = [key("dflash.rope.freq_base", FLOAT32, theta)]
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return keys
    if kind not in ("linear", "yarn"):
        fail(f"rope_type {kind} cannot be written")
    keys.append(key("dflash.rope.scaling.type", STRING, kind))
    keys.append(key("dflash.rope.scaling.factor", FLOAT32, rope["factor"]))
    if kind == "yarn":
        original = rope.get("original_max_position_embeddings", config["max_position_embeddings"])
        keys.append(key("dflash.rope.scaling.original_context_length", U32, int(original)))
        keys.append(key("dflash.rope.scaling.yarn_beta_fast", FLOAT32, rope.get("beta_fast", 32)))
        keys.append(key("dflash.rope.scaling.yarn_beta_slow", FLOAT32, rope.get("beta_slow", 1)))
        if rope.get("attention_factor") is not None:
            fail("rope attention_factor cannot be written")
    return keys


def window_keys(config):
    types = config.get("layer_types") or ["full_attention"] * config["num_hidden_layers"]
    sliding = [kind == "sliding_attention" for kind in types]
    if not any(sliding):
        return []
    return [
        key("dflash.attention.sliding_window", U32, config["sliding_window"]),
        key_list("dflash.attention.sliding_window_pattern", BOOL, sliding),
    ]


def plain_config(config):
    """A speculators configuration with z-lab's fields; others as they are."""
    if "speculators_model_type" not in config:
        return config
    if config["speculators_model_type"] != "dflash" or config.get("sample_from_anchor"):
        fail("of the speculators layout only dflash is converted")
    plain = {**config["transformer_layer_config"], "architectures": ["DFlashDraftModel"]}
    plain["dflash_config"] = {
        "target_layer_ids": [i - 1 for i in config["aux_hidden_state_layer_ids"]],
        "mask_token_id": config["mask_token_id"],
        "block_size": config.get("block_size", 8),
    }
    if config.get("sliding_window_non_causal"):
        plain["is_causal"] = False
    return plain


def metadata(config, options):
    inner = config.get("dflash_config") or {}
    field = lambda name, absent=None: inner.get(name, config.get(name, absent))
    ids, mask = field("target_layer_ids"), field("mask_token_id")
    if ids is None or mask is None:
        fail("config.json lacks target_layer_ids or mask_token_id")
    heads = config["num_attention_heads"]
    keys = [
        key("general.architecture", STRING, "dflash"),
        key("general.type", STRING, "model"),
        key("general.name", STRING, options.name),
        key("general.license", STRING, options.license),
        key("general.alignment", U32, ALIGNMENT),
        key("general.file_type", U32, 32 if options.bf16 else 7),
        key("general.quantization_version", U32, 2),
        key("dflash.block_count", U32, config["num_hidden_layers"]),
        key("dflash.context_length", U32, config["max_position_embeddings"]),
        key("dflash.embedding_length", U32, config["hidden_size"]),
        key("dflash.feed_forward_length", U32, config["intermediate_size"]),
        key("dflash.attention.head_count", U32, heads),
        key("dflash.attention.head_count_kv", U32, config.get("num_key_value_heads", heads)),
        key("dflash.attention.key_length", U32, config["head_dim"]),
        key("dflash.attention.value_length", U32, config["head_dim"]),
        key("dflash.attention.layer_norm_rms_epsilon", FLOAT32, config["rms_norm_eps"]),
        key("dflash.rope.dimension_count", U32, config["head_dim"]),
        key("dflash.vocab_size", U32, config["vocab_size"]),
        key("dflash.block_size", U32, field("block_size", 16)),
        key("dflash.mask_token_id", U32, mask),
        key("tokenizer.ggml.mask_token_id", U32, mask),
        key_list("dflash.target_layers", U32, [i + 1 for i in ids]),
    ]
    if options.target:
        keys.append(key("general.base_model.count", U32, 1))
        keys.append(key("general.base_model.0.name", STRING, options.target.split("/")[-1]))
        keys.append(key("general.base_model.0.repo_url", STRING,
                        f"https://huggingface.co/{options.target}"))
    if field("num_target_layers") is not None:
        keys.append(key("dflash.target_block_count", U32, field("num_target_layers")))
    if config.get("is_causal") is not None:
        keys.append(key("dflash.attention.causal", BOOL, config["is_causal"]))
    for name, written in (("input_embedding_scale", "embedding_scale"),
                          ("output_multiplier", "logit_scale"),
                          ("final_logit_softcapping", "final_logit_softcapping")):
        if field(name):
            keys.append(key(f"dflash.{written}", FLOAT32, field(name)))
    for name in ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"):
        if field(name):
            keys.append(key(f"dflash.{name}", U32, field(name)))
    return keys + rope_keys(config) + window_keys(config)


def padded(size):
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def write(path, keys, tensors, keep_bf16):
    infos, data = [], []
    offset = 0
    for name, bf16 in tensors.items():
        kind, raw = encode(bf16, keep_bf16)
        dims = bf16.shape[::-1]
        infos.append(string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset))
        data.append(raw + bytes(padded(len(raw)) - len(raw)))
        offset += len(data[-1])
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(keys)) + b"".join(keys + infos)
    path.write_bytes(head + bytes(padded(len(head)) - len(head)) + b"".join(data))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("draft", type=pathlib.Path, help="folder with config.json, model.safetensors")
    parser.add_argument("output", type=pathlib.Path, help="the .gguf file to write")
    parser.add_argument("--name", required=True, help="general.name")
    parser.add_argument("--target", help="Hugging Face id of the target the draft belongs to")
    parser.add_argument("--license", default="apache-2.0")
    parser.add_argument("--bf16", action="store_true", help="keep matrices in BF16")
    parser.add_argument("--llama-names", action="store_true", help="name tensors as llama.cpp does")
    options = parser.parse_args()

    config = plain_config(json.loads((options.draft / "config.json").read_text()))
    if config.get("architectures") not in (["DFlashDraftModel"], ["DFlash2DraftModel"]):
        fail(f"architectures is {config.get('architectures')}; DFlashDraftModel and "
             "DFlash2DraftModel are converted")
    tensors = read_tensors(options.draft / "model.safetensors")
    if options.llama_names:
        tensors = {llama_name(name): tensor for name, tensor in tensors.items()}
    keys = metadata(config, options)
    write(options.output, keys, tensors, options.bf16)
    print(f"{options.output}: {len(tensors)} tensors, {options.output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
