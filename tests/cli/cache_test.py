#!/usr/bin/env python3
"""Runs generate --cache-dir and the cache verbs on the folders that it leaves.

usage: tests/cli/cache_test.py BINARY [unittest options]
"""

import json
import signal
import subprocess

from command import DRAFT, GGUF, SLOW, TARGET, Case, binary, main, run

PAIR = ["--model", TARGET, "--draft", DRAFT]
PROMPT = "Write a Python function that adds two numbers, with a test and an example. " * 4


class CacheCase(Case):
    def setUp(self):
        super().setUp()
        self.cache = self.folder / "cache"

    def generate(self, *words, prompt=PROMPT, pair=PAIR):
        return self.ok_json("generate", *pair, "--prompt", prompt, "--max-tokens", "70", "--ignore-eos",
                            "--cache-dir", self.cache, *words)

    def page_files(self):
        """The files with pages, the largest first."""
        files = [path for path in (self.cache / "v1").rglob("*") if path.is_file()]
        return sorted(files, key=lambda path: -path.stat().st_size)


class Generate(CacheCase):
    def test_without_a_cache_it_says_so(self):
        made = self.ok_json("generate", *PAIR, "--prompt", "hi", "--max-tokens", "3")
        self.assertEqual(made["cache"], {"matched_tokens": 0, "tier": "none", "reason": "disabled",
                                         "stored_pages": 0})

    def test_the_second_run_finds_what_the_first_has_stored(self):
        first = self.generate()
        self.assertEqual((first["cache"]["matched_tokens"], first["cache"]["tier"]), (0, "none"))
        pages = (len(first["prompt_ids"]) + len(first["ids"]) - 1) // 64
        self.assertEqual(first["cache"]["stored_pages"], pages)
        again = self.generate()
        self.assertEqual(again["cache"]["tier"], "disk")
        self.assertEqual(again["cache"]["matched_tokens"], (len(first["prompt_ids"]) - 1) // 64 * 64)
        self.assertEqual(again["ids"], first["ids"])
        plain = self.ok_json("generate", *PAIR, "--prompt", PROMPT, "--max-tokens", "70", "--ignore-eos")
        self.assertEqual(plain["ids"], first["ids"])

    def test_at_a_fixed_width_turns_are_the_same(self):
        first = self.generate("--width", "8")
        again = self.generate("--width", "8")
        self.assertGreater(again["cache"]["matched_tokens"], 0)
        self.assertEqual(again["accepted_per_turn"], first["accepted_per_turn"])

    def test_a_longer_prompt_continues_from_the_answer(self):
        first = self.generate()
        ids = first["prompt_ids"] + first["ids"]
        longer = self.ok_json("generate", *PAIR, "--ids", self.ids_file(ids + [5, 6, 7]),
                              "--max-tokens", "4", "--cache-dir", self.cache)
        self.assertEqual(longer["cache"]["matched_tokens"], (len(ids) - 1) // 64 * 64)

    def test_the_draft_is_not_needed_for_a_hit(self):
        first = self.generate()
        plain = self.generate(pair=["--model", TARGET])
        self.assertEqual(plain["cache"]["tier"], "disk")
        self.assertEqual(plain["ids"], first["ids"])

    def test_another_model_finds_nothing_and_shares_the_folder(self):
        self.generate()
        other = self.generate(pair=["--model", str(GGUF), "--draft", DRAFT])
        self.assertEqual(other["cache"]["matched_tokens"], 0)
        for pair in [PAIR, ["--model", str(GGUF), "--draft", DRAFT]]:
            self.assertEqual(self.generate(pair=pair)["cache"]["tier"], "disk")

    def test_damaged_pages_are_never_used(self):
        first = self.generate()
        for path in self.page_files()[:4]:
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
        again = self.generate()
        self.assertEqual(again["ids"], first["ids"])
        self.assertLess(again["cache"]["matched_tokens"], (len(first["prompt_ids"]) - 1) // 64 * 64)

    def test_folders_that_are_not_a_cache(self):
        (self.folder / "mine").mkdir()
        (self.folder / "mine" / "letter.txt").write_text("dear")
        self.refused("generate", *PAIR, "--prompt", "hi", "--cache-dir", self.folder / "mine",
                     about=["mine"])
        self.assertEqual((self.folder / "mine" / "letter.txt").read_text(), "dear")
        self.refused("generate", *PAIR, "--prompt", "hi", "--cache-limit", "1G", code=2,
                     about=["--cache-dir"])

    def test_an_interrupted_answer_leaves_a_good_folder(self):
        process = subprocess.Popen([binary(), "generate", *PAIR, "--prompt", PROMPT, *SLOW,
                                    "--max-tokens", "0", "--ignore-eos", "--cache-dir", str(self.cache)],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertEqual(self.ok_json("cache", "verify", self.cache)["damaged"], [])


class Verbs(CacheCase):
    def ls(self):
        return self.ok_json("cache", "ls", self.cache)

    def test_ls_and_show(self):
        made = self.generate()
        found = self.ls()
        self.assertEqual(len(found["digests"]), 2)  # the target's and the draft's
        for digest in found["digests"]:
            self.assertEqual(digest["tokens"], made["cache"]["stored_pages"] * 64)
            self.assertEqual((digest["tenants"], digest["snapshots"], digest["busy"]), (1, 1, False))
            self.assertGreater(digest["bytes"], 0)
            shown = self.ok_json("cache", "show", self.cache, "--digest", digest["digest"][:10])
            self.assertEqual(shown["digest"], digest["digest"])
            self.assertEqual(shown["pages"], digest["pages"])
            self.assertIn(digest["digest"], self.ok("cache", "show", self.cache, "--digest",
                                                    digest["digest"]).decode())
            self.assertIn(digest["digest"][:12], self.ok("cache", "ls", self.cache).decode())
        self.refused("cache", "show", self.cache, about=["2 digests", "--digest", "cache ls"])
        self.assertGreaterEqual(found["bytes"], sum(digest["bytes"] for digest in found["digests"]))

    def test_show_takes_the_only_digest(self):
        self.generate(pair=["--model", TARGET])
        digest, = self.ls()["digests"]
        self.assertEqual(self.ok_json("cache", "show", self.cache)["digest"], digest["digest"])

    def test_verify(self):
        self.generate()
        found = self.ok_json("cache", "verify", self.cache)
        self.assertEqual((found["damaged"], found["busy"]), ([], []))
        self.assertEqual(found["pages"], sum(digest["pages"] for digest in self.ls()["digests"]))
        self.assertIn("all are whole", self.ok("cache", "verify", self.cache).decode())
        path = self.page_files()[0]
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        for words in [[], ["--set-aside"]]:
            done = run("cache", "verify", self.cache, "--json", *words)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(len(json.loads(done.stdout)["damaged"]), 1)
        self.ok("cache", "verify", self.cache)

    def test_prune(self):
        self.generate()
        self.generate(prompt="Something else. " * 20)
        before = self.ls()
        half = before["bytes"] // 2
        dry = self.ok_json("cache", "prune", self.cache, "--to", str(half), "--dry-run")
        self.assertTrue(dry["dry_run"])
        self.assertGreater(dry["runs"], 0)
        self.assertEqual(self.ls()["bytes"], before["bytes"])
        done = self.ok_json("cache", "prune", self.cache, "--to", str(half))
        self.assertEqual(done["runs"], dry["runs"])
        self.assertLessEqual(self.ls()["bytes"], half)
        self.assertEqual(self.ok_json("cache", "verify", self.cache)["damaged"], [])
        self.refused("cache", "prune", self.cache, code=2, about=["--to"])
        self.refused("cache", "prune", self.cache, "--to", "5 GB", code=2, about=["5 GB"])

    def test_clear(self):
        self.generate()
        (self.cache / "v1" / "mine.txt").write_text("dear")
        self.refused("cache", "clear", self.cache, code=2, about=["--all", "--digest"])
        first, second = (digest["digest"] for digest in self.ls()["digests"])
        self.ok("cache", "clear", self.cache, "--digest", first[:12])
        self.assertEqual([d["digest"] for d in self.ls()["digests"] if d["pages"]], [second])
        self.ok("cache", "clear", self.cache, "--all")
        self.assertEqual(sum(digest["pages"] for digest in self.ls()["digests"]), 0)
        self.assertEqual((self.cache / "v1" / "mine.txt").read_text(), "dear")
        self.assertEqual(self.generate()["cache"]["matched_tokens"], 0)

    def test_folders_and_digests_that_are_not_there(self):
        (self.folder / "mine").mkdir()
        (self.folder / "mine" / "letter.txt").write_text("dear")
        for verb in [["ls"], ["verify"], ["prune", "--to", "0"], ["clear", "--all"]]:
            for folder in ["none", "mine"]:
                self.refused("cache", *verb, self.folder / folder, about=[folder])
        self.assertEqual((self.folder / "mine" / "letter.txt").read_text(), "dear")
        self.assertFalse((self.folder / "none").exists())
        self.generate()
        self.refused("cache", "show", self.cache, "--digest", "zz", about=["zz"])
        self.refused("cache", "clear", self.cache, "--digest", "", code=2)

    def test_wrong_words(self):
        self.refused("cache", code=2, about=["ls", "prune"])
        self.refused("cache", "lss", code=2, about=["lss", "ls"])
        self.refused("cache", "ls", code=2, about=["folder"])
        self.refused("cache", "ls", self.cache, "--jsno", code=2, about=["cache ls", "--json"])


if __name__ == "__main__":
    main(__doc__)
