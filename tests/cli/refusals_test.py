#!/usr/bin/env python3
"""Files and models that the drafthouse binary refuses, each with one clear line.

usage: tests/cli/refusals_test.py BINARY [unittest options]
"""

import json
import os
import pathlib
import shutil
import subprocess

from command import DRAFT, GGUF, NANO, NO_TEXT, TARGET, Case, binary, main, run


class Refusals(Case):
    def test_lists_of_ids(self):
        for text, about in [("", "JSON"), ("[1,", "JSON"), ("{}", "list"), ("7", "list"),
                            ("[]", "empty"), ("[1, -1]", "element 1"), ("[1.5]", "element 0"),
                            ("[1, 2, \"3\"]", "element 2"), ("[99999999999]", "element 0"),
                            ("[[1]]", "element 0"), ("[" * 100000, "JSON"), ("[2048]", "2048")]:
            path = self.file("ids.json", text)
            self.refused("generate", "--model", TARGET, "--ids", path, about=[about])
        self.refused("generate", "--model", TARGET, "--ids", self.folder / "none", about=["none"])
        self.refused("generate", "--model", TARGET, "--ids", self.folder, about=["directory"])
        for text in ["[]", "[1]", "[1, 2048]"]:
            self.refused("score", "--model", TARGET, "--ids", self.file("ids.json", text))

    def test_texts_that_cannot_fit(self):
        for piece in ["a", " ", "\n", "\U0001F600"]:
            for mib, about in [(64, "16 MiB"), (15, "positions")]:
                path = self.file("prompt", piece.encode() * ((mib << 20) // len(piece.encode())))
                self.refused("generate", "--model", TARGET, "--prompt-file", path, about=[about])
                os.unlink(path)
        self.refused("tokenize", "--model", TARGET, stdin=b" " * (17 << 20), about=["16 MiB"])
        self.refused("generate", "--model", TARGET, "--ids", self.file("ids", " " * (17 << 20)),
                     about=["16 MiB"])

    def test_models(self):
        words = ["--prompt", "hi"]
        for name in ["", self.folder / "none", self.folder, "org/none", "/dev/null", "a/../b"]:
            self.refused("generate", "--model", name, *words)
            self.refused("inspect", name)
            self.refused("tokenize", "--model", name)
        self.refused("generate", "--model", DRAFT, *words, about=["draft"])
        self.refused("generate", "--model", TARGET, "--draft", TARGET, *words, about=["draft"])
        self.refused("generate", "--model", NO_TEXT, "--draft", DRAFT, *words, about=["hidden_size"])

    def test_links_that_lead_nowhere(self):
        loop = self.folder / "loop"
        loop.symlink_to("loop")
        why = [f"{loop}: Too many levels of symbolic links"]
        for words in [["inspect", loop], ["inspect", TARGET, "--draft", loop],
                      ["tokenize", "--model", loop], ["bench", "--model", loop],
                      ["score", "--model", TARGET, "--ids", loop],
                      ["score", "--model", loop, "--ids", self.ids_file([1, 2])]]:
            self.refused(*words, about=why)
        for words in [["--model", loop, "--prompt", "hi"], ["--model", TARGET, "--ids", loop],
                      ["--model", TARGET, "--prompt-file", loop],
                      ["--model", TARGET, "--prompt", "hi", "--draft", loop]]:
            self.refused("generate", *words, about=why)

    def test_what_may_not_be_read(self):
        closed = self.folder / "closed"
        shutil.copytree(TARGET, closed / "model")
        prompt = self.file("prompt", "[1]")
        gguf = self.file("model.gguf", "GGUF")
        partly = self.folder / "partly"
        shutil.copytree(TARGET, partly)
        for path in [prompt, gguf, partly / "tokenizer.json"]:
            os.chmod(path, 0)
        os.chmod(closed, 0)
        self.addCleanup(os.chmod, closed, 0o700)
        os.chmod(self.folder, 0o755)
        # Root may read everything.
        user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        try:
            self.assertEqual(subprocess.run([binary(), "--version"], capture_output=True, **user).returncode, 0)
            (pathlib.Path(TARGET) / "config.json").open().close()
        except PermissionError:
            self.skipTest("another user cannot run the binary")
        for words, path in [(["inspect", closed], closed), (["inspect", closed / "model"], closed / "model"),
                            (["inspect", gguf], gguf), (["inspect", partly], partly / "tokenizer.json"),
                            (["generate", "--model", TARGET, "--prompt-file", prompt], prompt),
                            (["generate", "--model", TARGET, "--ids", prompt], prompt),
                            (["generate", "--model", TARGET, "--draft", closed, "--prompt", "a"], closed),
                            (["tokenize", "--model", closed / "model"], closed / "model")]:
            done = subprocess.run([binary(), *map(str, words)], capture_output=True,
                                  stdin=subprocess.DEVNULL, **user)
            lines = done.stderr.decode().splitlines()
            self.assertEqual((done.returncode, len(lines)), (1, 1), lines)
            self.assertIn(f"{path}: ", lines[0])
            self.assertIn("Permission denied", lines[0])

    def test_broken_files(self):
        whole = GGUF.read_bytes()
        for name, content in [("empty.gguf", b""), ("magic.gguf", b"GGUF" + b"\xff" * 100),
                              ("cut.gguf", whole[:len(whole) // 2]), ("head.gguf", whole[:1000])]:
            path = self.file(name, content)
            self.refused("inspect", path, about=[name])
            self.refused("generate", "--model", path, "--prompt", "hi", about=[name])
        for name in ["config.json", "model.safetensors", "tokenizer.json"]:
            folder = self.folder / name
            shutil.copytree(TARGET, folder)
            content = (folder / name).read_bytes()
            (folder / name).write_bytes(content[:len(content) // 2])
            self.refused("generate", "--model", folder, "--prompt", "hi", about=[name])
            done = run("inspect", folder, "--json")
            self.assertEqual(done.returncode, 1, name)
            self.assertIn(name, json.loads(done.stdout)["error"]["message"])

    def test_a_wrong_draft_is_refused_with_one_reason(self):
        folder = self.folder / "draft"
        shutil.copytree(DRAFT, folder)
        config = json.loads((folder / "config.json").read_text())
        config["architectures"] = ["DFlash2DraftModel"]
        config["dflash_config"] |= {"conv_kernel_size": 2, "conv_group_size": 16, "selector_rank": 8,
                                    "selector_top_k": 4}
        (folder / "config.json").write_text(json.dumps(config))
        done = self.refused("inspect", TARGET, "--draft", folder, "--json",
                            about=["DFlash2DraftModel", "candidate selector"])
        pairing = json.loads(done.stdout)["pairing"]
        self.assertFalse(pairing["fits"])
        loading = self.refused("generate", "--model", TARGET, "--draft", folder, "--prompt", "hi")
        self.assertEqual(loading.stderr, done.stderr)
        self.assertIn(pairing["reason"], done.stderr.decode())
        self.refused("generate", "--model", TARGET, "--draft", DRAFT, "--prompt", "hi",
                     "--draft-window", "100", code=2, about=["100", "256"])

    def test_a_template_that_does_not_compile_is_told_with_its_file(self):
        whole = json.loads((NANO / "target" / "tokenizer_config.json").read_text())
        for name, content in [("chat_template.jinja", "{% if %}"),
                              ("tokenizer_config.json", json.dumps(whole | {"chat_template": "{% if %}"}))]:
            folder = self.folder / name
            shutil.copytree(TARGET, folder)
            (folder / name).write_text(content)
            self.refused("generate", "--model", folder, "--prompt", "hi", about=[f"/{name}: chat template"])
            done = self.refused("inspect", folder, "--json", about=[f"/{name}: chat template"])
            found = json.loads(done.stdout)["tokenizer"]
            self.assertFalse(found["chat_template"])
            self.assertIn(f"/{name}: chat template", found["chat_template_error"])
            text = self.refused("inspect", folder).stdout.decode()
            self.assertRegex(text, f"chat_template +no\n *chat_template_error .*/{name}")
        self.assertTrue(self.ok_json("inspect", TARGET)["tokenizer"]["chat_template"])

    def test_json_errors_are_json(self):
        done = self.refused("generate", "--model", self.folder / "none", "--prompt", "hi", "--json")
        error = json.loads(done.stdout)["error"]
        self.assertEqual(error["code"], "not_found")
        self.assertIn("none", error["message"])


if __name__ == "__main__":
    main(__doc__)
