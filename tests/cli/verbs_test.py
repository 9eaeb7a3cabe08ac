#!/usr/bin/env python3
"""The verbs that have no file of their own: score, tokenize, inspect, doctor, completion.

usage: tests/cli/verbs_test.py BINARY [unittest options]
"""

import json
import shutil
import subprocess

from command import DRAFT, GGUF, NANO, NO_TEXT, PROMPT, TARGET, Case, main


class OtherVerbs(Case):
    def test_score_finds_what_generate_chose(self):
        words = ["--model", TARGET, "--compute", "fp32"]
        made = self.ok_json("generate", *words, "--prompt", PROMPT, "--max-tokens", "24")
        ids = made["prompt_ids"] + made["ids"]
        path = self.ids_file(ids)
        scored = self.ok_json("score", *words, "--ids", path)
        self.assertEqual(len(scored["logprob"]), len(ids) - 1)
        self.assertEqual(scored["top"][-24:], made["ids"])
        self.assertTrue(all(value <= 0 for value in scored["logprob"]))
        for width in ["3", "4096"]:
            self.assertEqual(self.ok_json("score", *words, "--ids", path, "--width", width), scored)
        self.refused("score", *words, "--ids", path, "--prefill-chunk", "3", code=2,
                     about=["--prefill-chunk"])
        self.assertIn("perplexity", self.ok("score", *words, "--ids", path).decode())

    def test_tokenize_there_and_back(self):
        golden = json.loads((NANO / "golden.json").read_text())
        for case in golden["cases"][:3]:
            ids = self.ok_json("tokenize", "--model", TARGET, stdin=case["text"].encode())["ids"]
            self.assertEqual(ids, case["prompt_ids"])
            back = self.ok("tokenize", "--model", TARGET, "--decode", stdin=json.dumps(ids).encode())
            self.assertEqual(back.decode(), case["text"])
        self.assertEqual(self.ok_json("tokenize", "--model", str(GGUF), stdin=b"")["ids"], [])
        printed = self.ok("tokenize", "--model", TARGET, "--json", stdin="Ünï 🦊".encode())
        back = self.ok("tokenize", "--model", TARGET, "--decode", stdin=printed)
        self.assertEqual(back.decode(), "Ünï 🦊")
        self.refused("tokenize", "--model", TARGET, "--decode", stdin=b"[4000]", about=["4000"])

    def test_inspect(self):
        found = self.ok_json("inspect", TARGET, "--draft", DRAFT)
        self.assertTrue(found["pairing"]["fits"])
        self.assertEqual(found["config"]["family"], "qwen3")
        self.assertEqual(found["tokenizer"]["tokens"], 2048)
        rows = {row["name"]: row for row in found["tensors"]}
        self.assertEqual(rows["model.embed_tokens.weight"]["shape"], [2048, 192])
        self.assertEqual(sum(row["bytes"] for row in rows.values()), found["bytes"])
        self.assertTrue(all(row["exact"] for row in rows.values()))
        text = self.ok("inspect", GGUF).decode()
        self.assertIn("q8_0", text)
        self.assertNotIn("model.embed_tokens.weight", text)
        self.assertIn("model.embed_tokens.weight", self.ok("inspect", GGUF, "--tensors").decode())
        text = self.ok("inspect", TARGET, "--draft", DRAFT).decode()
        order = [text.index(part) for part in
                 ["target", "\ntensors", "\nconfig", "\ntokenizer", "fits this target", "\ndraft\n", "block_size"]]
        self.assertEqual(order, sorted(order))
        self.assertIn("theta ", text)
        self.assertNotIn("{", text)
        self.assertEqual(self.ok_json("inspect", DRAFT)["config"]["block_size"], 16)

    def test_inspect_says_of_tensors_what_a_load_says(self):
        folder = self.folder / "target"
        shutil.copytree(TARGET, folder)
        config = json.loads((folder / "config.json").read_text())
        for change, reason in [({"vocab_size": 4096}, "model.embed_tokens.weight"),
                               ({"num_hidden_layers": 5}, "model.layers.5."),
                               ({"num_hidden_layers": 7}, "model.layers.6."),
                               ({"model_type": "qwen2"}, "bias"),
                               ({"intermediate_size": 256}, "mlp.gate_proj.weight")]:
            (folder / "config.json").write_text(json.dumps(config | change | {"layer_types": None}))
            done = self.refused("inspect", folder, about=[reason])
            loading = self.refused("generate", "--model", folder, "--prompt", "hi", about=[reason])
            self.assertEqual(loading.stderr, done.stderr)

    def test_inspect_tells_why_a_pair_does_not_fit(self):
        done = self.refused("inspect", NO_TEXT, "--draft", DRAFT, "--json", about=["hidden_size"])
        pairing = json.loads(done.stdout)["pairing"]
        self.assertFalse(pairing["fits"])
        self.assertIn("hidden_size", pairing["reason"])
        done = self.refused("inspect", NO_TEXT, "--draft", DRAFT, about=["hidden_size"])
        verdict = next(line for line in done.stdout.decode().splitlines() if "cannot be used" in line)
        self.assertIn("hidden_size", verdict)

    def test_doctor(self):
        found = self.ok_json("doctor")
        self.assertIn(found["isa"]["chosen"], [row["isa"] for row in found["isa"]["built"]])
        self.assertGreater(found["cores"]["usable"], 0)
        self.assertGreater(found["bandwidth_gbps"], 0)
        self.assertIn("kernels", self.ok("doctor").decode())

    def test_completion(self):
        for shell in ["bash", "zsh", "fish"]:
            script = self.ok("completion", shell)
            for word in [b"generate", b"max-tokens", b"fp32"]:
                self.assertIn(word, script, shell)
            if shutil.which(shell):
                path = self.file(shell, script)
                checked = subprocess.run([shell, "-n", path], capture_output=True)
                self.assertEqual(checked.returncode, 0, checked.stderr)

    def test_bash_completes(self):
        script = self.ok("completion", "bash").decode()
        for line, expected in [("gen", "generate"), ("generate --max-t", "--max-tokens"),
                               ("generate --compute f", "fp32"), ("completion z", "zsh"),
                               ("inspect /dev/nul", "/dev/null"), ("cache ver", "verify"),
                               ("cache prune --dr", "--dry-run"), ("cache ls /dev/nul", "/dev/null"),
                               ("cache ls --js", "--json"), ("chat --cache-dir /dev/nul", "/dev/null"),
                               ("generate --model /dev/nul", "/dev/null")]:
            words = line.split(" ")
            command = (f"{script}\nCOMP_WORDS=(drafthouse {line}); COMP_CWORD={len(words)}\n"
                       "_drafthouse; printf '%s\\n' \"${COMPREPLY[@]}\"")
            done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
            self.assertEqual(done.stdout.split(), [expected], line)


if __name__ == "__main__":
    main(__doc__)
