#!/usr/bin/env python3
"""`drafthouse generate`, as people and scripts run it.

usage: tests/cli/generate_test.py BINARY [unittest options]
"""

import json
import pathlib
import shutil

from command import DRAFT, NANO, NO_TEXT, PROMPT, TARGET, Case, main, run


class Generate(Case):
    def generate(self, *words):
        return self.ok_json("generate", "--model", TARGET, *words)

    def test_json_fields(self):
        result = self.generate("--draft", DRAFT, "--prompt", PROMPT, "--max-tokens", "40", "--width",
                               "8")
        self.assertEqual(result["mode"], "dflash")
        self.assertNotIn("reason", result)
        self.assertEqual(result["finish_reason"], "length")
        self.assertEqual(len(result["ids"]), 40)
        self.assertEqual(set(result["width_per_turn"]), {8})
        self.assertEqual(len(result["accepted_per_turn"]), len(result["width_per_turn"]))
        # The first id comes from prefill; the last turn may be cut by the limit.
        self.assertGreaterEqual(1 + sum(result["accepted_per_turn"]), 40)
        self.assertLess(1 + sum(result["accepted_per_turn"][:-1]), 40)
        for name in ["load_s", "prefill_s", "decode_s", "draft_s", "verify_s"]:
            self.assertGreaterEqual(result["timings"][name], 0)
        tags = {tag: size for tag, size in result["memory"].items() if tag != "total"}
        self.assertEqual(sum(tags.values()), result["memory"]["total"])
        self.assertGreater(tags["weights"], 1_000_000)
        self.assertEqual(pathlib.Path(result["model"]["target"]), NANO / "target")
        self.assertGreater(result["model"]["threads"], 0)

    def test_why_it_is_plain(self):
        short = ["--prompt", "hi", "--max-tokens", "4"]
        for words, reason in [([], "no draft"), (["--no-draft"], "no draft"),
                              (["--width", "5"], "no draft"),
                              (["--draft", DRAFT, "--width", "1"], "width")]:
            result = self.generate(*short, *words)
            self.assertEqual((result["mode"], result["reason"]), ("plain", reason))
            self.assertEqual(result["accepted_per_turn"], [1, 1, 1])

    def test_ids_do_not_depend_on_how_they_are_made(self):
        words = ["--prompt", PROMPT, "--max-tokens", "48", "--ignore-eos"]
        plain = self.generate(*words)
        for more in [["--width", "16"], ["--width", "auto"], ["--width", "3", "--threads", "1"],
                     ["--width", "16", "--prefill-chunk", "7"],
                     ["--width", "16", "--draft-window", "256", "--draft-sink", "0"],
                     ["--draft-window", "0"]]:
            result = self.generate(*words, "--draft", DRAFT, *more)
            self.assertEqual(result["ids"], plain["ids"], more)
            self.assertEqual(result["text"], plain["text"], more)

    def test_prompts_by_text_file_and_ids_agree(self):
        text = self.generate("--prompt", PROMPT, "--max-tokens", "9")
        path = self.file("prompt.txt", PROMPT)
        self.assertEqual(self.generate("--prompt-file", path, "--max-tokens", "9")["ids"], text["ids"])
        ids = self.ids_file(text["prompt_ids"])
        self.assertEqual(self.generate("--ids", ids, "--max-tokens", "9")["ids"], text["ids"])
        raw = self.generate("--prompt", PROMPT, "--raw", "--max-tokens", "9")
        self.assertLess(len(raw["prompt_ids"]), len(text["prompt_ids"]))

    def test_stop_strings_end_the_text_before_them(self):
        words = ["--prompt", PROMPT, "--max-tokens", "64", "--draft", DRAFT]
        whole = self.generate(*words)["text"]
        stop = whole[20:27]
        result = self.generate(*words, "--stop", "never [there]", "--stop", stop)
        self.assertEqual(result["text"], whole[:whole.index(stop)])
        self.assertEqual(result["finish_reason"], "stop")

    def test_text_goes_out_and_the_summary_elsewhere(self):
        words = ["--prompt", PROMPT, "--max-tokens", "32", "--draft", DRAFT]
        done = run("generate", "--model", TARGET, *words)
        self.assertEqual(done.stdout.decode().rstrip("\n"), self.generate(*words)["text"].rstrip("\n"))
        summary = done.stderr.decode().splitlines()
        self.assertEqual(len(summary), 2)
        self.assertIn("32 tokens at ", summary[0])
        self.assertIn("dflash", summary[1])

    def test_any_bytes_are_a_prompt(self):
        for content in [b"a\0b", b"\xff\xfe\x80", b"\xe2\x82", b"\x1b[2J", "é€😀".encode()]:
            path = self.file("prompt", content)
            self.generate("--prompt-file", path, "--max-tokens", "2")
            self.generate("--prompt-file", path, "--max-tokens", "2", "--raw")
        self.generate("--prompt", "", "--max-tokens", "2")
        self.generate("--prompt=", "--max-tokens", "2")
        self.generate("--prompt", "--model", "--max-tokens", "2")

    def test_the_context_is_a_limit_and_not_an_overrun(self):
        ids = self.ids_file([1, 2, 3])
        words = ["--ids", ids, "--ignore-eos", "--max-tokens", "0", "--draft", DRAFT]
        for width in ["1", "16", "auto"]:
            result = self.generate(*words, "--context", "40", "--width", width)
            self.assertEqual((len(result["ids"]), result["finish_reason"]), (37, "length"))
        self.refused("generate", "--model", TARGET, "--ids", ids, "--context", "3", about=["3"])

    def test_a_model_without_text(self):
        ids = self.ids_file([1, 2, 3])
        result = self.ok_json("generate", "--model", NO_TEXT, "--ids", ids, "--max-tokens", "5")
        self.assertEqual((len(result["ids"]), result["text"]), (5, ""))
        self.refused("generate", "--model", NO_TEXT, "--prompt", "hi", about=["tokenizer", "--ids"])
        folder = self.folder / "no_template"
        shutil.copytree(TARGET, folder)
        (folder / "tokenizer_config.json").unlink()
        self.refused("generate", "--model", folder, "--prompt", "hi", about=["template", "--raw"])
        self.ok("generate", "--model", folder, "--prompt", "hi", "--raw", "--max-tokens", "2")


class Sampling(Case):
    def generate(self, *words):
        return self.constrained("--ignore-eos", *words)

    def constrained(self, *words):
        return self.ok_json("generate", "--model", TARGET, "--prompt", PROMPT, "--max-tokens", "24", *words)

    def test_wrong_values_name_their_flag(self):
        words = ["generate", "--model", "nothing", "--prompt", "hi"]
        for flag, value in [("--temperature", "-1"), ("--temperature", "nan"), ("--top-p", "0"),
                            ("--min-p", "2"), ("--typical-p", "1.1"), ("--xtc-threshold", "0"),
                            ("--repetition-penalty", "0"), ("--dry-base", "0.1"),
                            ("--logit-bias", "7"), ("--logit-bias", "7=x"), ("--ban-ids", "a"),
                            ("--seed", "-1"), ("--n", "17"), ("--logprobs", "101")]:
            self.refused(*words, flag, value, code=2, about=[flag])
        self.refused(*words, "--n", "2", code=2, about=["--n", "--temperature"])
        for flag, value, needed in [("--dry-base", "2", "--dry-multiplier"),
                                    ("--dry-range", "9", "--dry-multiplier"),
                                    ("--xtc-threshold", "0.3", "--xtc-probability")]:
            self.refused(*words, "--temperature", "1", flag, value, code=2, about=[flag, needed])
        self.refused(*words, "--logprobs", "1", code=2, about=["--json"])
        self.refused(*words, "--regex", "a", "--json-schema", "b", code=2, about=["--regex"])
        self.refused("generate", "--model", TARGET, "--prompt", "hi", "--ban-ids", "1000000",
                     about=["ban_ids", "1000000"])

    def test_what_changes_nothing_is_told(self):
        words = ["generate", "--model", TARGET, "--prompt", "hi", "--max-tokens", "3", "--json"]
        plain = run(*words)
        for flags in [["--seed", "7"], ["--draft-window", "512"], ["--no-draft", "--draft-sink", "0"]]:
            done = run(*words, *flags)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["ids"], json.loads(plain.stdout)["ids"])
            self.assertIn(f"{flags[-2]} changes nothing without", done.stderr.decode())

    def test_one_seed_gives_one_text(self):
        words = ["--temperature", "0.9", "--top-p", "0.95", "--seed", "11"]
        plain = self.generate(*words)
        self.assertEqual(plain["seed"], 11)
        for more in [["--draft", DRAFT], ["--draft", DRAFT, "--width", "5"]]:
            self.assertEqual(self.generate(*words, *more)["ids"], plain["ids"], more)
        other = self.generate("--temperature", "0.9")
        self.assertLess(other["seed"], 2**53)
        again = self.generate("--temperature", "0.9", "--seed", str(other["seed"]))
        self.assertEqual(again["ids"], other["ids"])
        self.assertNotIn("seed", self.generate())

    def test_log_probabilities_and_several_answers(self):
        result = self.generate("--draft", DRAFT, "--temperature", "1", "--seed", "3", "--n", "3",
                               "--logprobs", "4", "--prompt-logprobs")
        self.assertEqual([token["id"] for token in result["logprobs"]], result["ids"])
        self.assertEqual(len(result["logprobs"][0]["top"]), 4)
        joined = b"".join(bytes(one["bytes"]) if "bytes" in one else one["text"].encode()
                          for one in result["prompt_logprobs"])
        whole = self.ok("tokenize", "--model", TARGET, "--decode",
                        stdin=json.dumps(result["prompt_ids"][1:]).encode())
        self.assertEqual(joined, whole)
        self.assertTrue(all("text" in one for token in result["logprobs"] for one in token["top"]))
        self.assertEqual(len(result["prompt_logprobs"]), len(result["prompt_ids"]) - 1)
        self.assertEqual(len(result["more"]), 2)
        self.assertEqual(len({tuple(one["ids"]) for one in [result, *result["more"]]}), 3)

    def test_grammars(self):
        words = ["--draft", DRAFT]
        self.assertRegex(self.constrained(*words, "--regex", "[a-c]{3,5}")["text"], "^[a-c]{3,5}$")
        lark = self.file("g.lark", 'start: ("yes" | "no") "!"\n')
        self.assertIn(self.constrained(*words, "--grammar", lark)["text"], ["yes!", "no!"])
        self.refused("generate", "--model", "nothing", "--prompt", "hi", "--regex", "a", "--ignore-eos", code=2,
                     about=["--ignore-eos"])
        schema = self.file("s.json", '{"enum": ["red", "blue"]}')
        text = self.ok_json("generate", "--model", TARGET, "--prompt", PROMPT, "--json-schema",
                            schema)["text"]
        self.assertIn(json.loads(text), ["red", "blue"])
        wrong = self.file("w.json", '{"properties": {"a": {"type": "objekt"}}}')
        self.refused("generate", "--model", TARGET, "--prompt", "hi", "--json-schema", wrong,
                     about=["#/properties/a", "objekt"])


class Replies(Case):
    BEGIN = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n"

    def reply(self, *words):
        return self.ok_json("generate", "--model", TARGET, "--max-tokens", "40", "--ignore-eos", *words)

    def test_thoughts_are_told_apart_and_bounded(self):
        words = ["--raw", "--prompt", self.BEGIN, "--thinking-budget", "6", "--logit-bias",
                 "2046=-100"]
        plain = self.reply(*words)
        self.assertEqual(plain["reasoning_tokens"], 6)
        self.assertTrue(plain["content"])
        self.assertIn(plain["content"].strip(), plain["text"])
        for more in [["--draft", DRAFT], ["--draft", DRAFT, "--width", "16"]]:
            self.assertEqual(self.reply(*words, *more)["ids"], plain["ids"])
        plain = self.reply("--raw", "--prompt", self.BEGIN, "--reply-format", "plain")
        self.assertEqual(plain["content"], plain["text"])
        self.assertNotIn("reasoning", plain)
        # Other readers get the text as it is with --raw.
        text = self.ok("generate", "--model", TARGET, "--max-tokens", "40", "--ignore-eos", "--raw",
                       "--prompt", self.BEGIN).decode()
        self.assertNotIn("\x1b", text)

    def test_a_pipe_gets_the_answer_alone(self):
        words = ["generate", "--model", TARGET, "--prompt", "Hi", "--template-options",
                 '{"enable_thinking": true}', "--max-tokens", "40", "--thinking-budget", "6",
                 "--logit-bias", "2046=-100"]
        for more in [["--regex", "yes|no"], ["--regex", r"\n?(yes|no)"], []]:
            told = self.ok_json(*words, *more)
            self.assertTrue(told["reasoning"])
            out = self.ok(*words, *more).decode()
            if more:
                self.assertRegex(out, rf"^{more[1]}\n$")
            self.assertEqual(out.strip("\n"), told["content"].strip("\n"))

    def test_template_options_and_tools_go_into_the_prompt(self):
        thinks = self.reply("--prompt", "Hi", "--template-options", '{"enable_thinking": true}')
        answers = self.reply("--prompt", "Hi")
        self.assertEqual(answers["prompt_ids"][:len(thinks["prompt_ids"])], thinks["prompt_ids"])
        self.assertGreater(len(answers["prompt_ids"]), len(thinks["prompt_ids"]))
        tools = self.file("t.json", '[{"type": "function", "function": {"name": "weather"}}]')
        told = self.reply("--prompt", "Hi", "--tools", tools)
        self.assertGreater(len(told["prompt_ids"]), len(answers["prompt_ids"]))

    def test_a_chat_takes_them_too(self):
        out = self.ok("chat", "--model", TARGET, "--max-tokens", "24", "--json", "--thinking-budget", "3",
                      "--template-options", '{"enable_thinking": true}', stdin=b"Hi\nMore\n").decode()
        for line in out.splitlines():
            self.assertIn("content", json.loads(line))

    def test_wrong_ones_are_refused_before_the_model_loads(self):
        words = ["generate", "--model", "nothing", "--prompt", "hi"]
        self.refused(*words, "--template-options", "{", code=2, about=["--template-options", "not JSON"])
        self.refused(*words, "--template-options", "[]", code=2, about=["--template-options", "object"])
        self.refused(*words, "--template-options", '{"tools": []}', code=2, about=["tools"])
        for text, about in [("{}", "list"), ("[{}]", "tools[0].name"), ("", "empty")]:
            self.refused(*words, "--tools", self.file("t.json", text), about=["t.json", about])
        self.refused(*words, "--tools", self.folder / "none", about=["none"])
        self.refused(*words, "--documents", self.file("d.json", "[1]"), about=["d.json", "documents[0]"])
        self.refused(*words, "--reply-format", "xml", code=2, about=["--reply-format", "harmony"])
        self.refused(*words, "--thinking-budget", "-1", code=2, about=["--thinking-budget"])
        self.refused(*words, "--raw", "--template-options", "{}", code=2, about=["--raw"])

    def test_the_text_side_is_asked_before_the_weights_are_read(self):
        # A context that no load gets past.
        model = ["--model", TARGET, "--context", "99999999"]
        words = ["generate", *model, "--prompt", "hi"]
        done = self.refused(*words, "--regex", "[0-9", code=2,
                            about=["regular expression: unclosed character class"])
        self.assertNotIn(b"start:", done.stderr)
        for text, about in [('{"type":', "not JSON"), ('{"type": "objekt"}', "objekt")]:
            self.refused(*words, "--json-schema", self.file("s.json", text), about=["s.json", about])
        self.refused(*words, "--grammar", self.file("g.lark", "start: x"), about=["g.lark"])
        for verb in [words, ["chat", *model]]:
            self.refused(*verb, "--template-options", '{"reasoning_effort": "high"}',
                         about=["reasoning_effort"])
            self.refused(*verb, "--thinking-budget", "3", "--reply-format", "llama",
                         about=["thinking_budget"])
        self.refused(*words, about=["99999999"])

    def test_an_empty_template_is_named(self):
        model = self.folder / "empty-template"
        shutil.copytree(TARGET, model)
        config = json.loads((model / "tokenizer_config.json").read_text())
        (model / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": " \n"}))
        about = ["tokenizer_config.json", "chat template is empty", "raw text"]
        words = ["generate", "--model", model, "--prompt", "hi"]
        self.refused(*words, "--context", "99999999", about=about)
        self.ok(*words, "--raw", "--max-tokens", "2")
        self.assertIn("chat template is empty", run("chat", "--model", model, stdin=b"hi\n").stderr.decode())

    def test_what_the_model_cannot_do_is_refused(self):
        words = ["generate", "--model", TARGET, "--prompt", "hi"]
        self.refused(*words, "--template-options", '{"reasoning_effort": "high"}',
                     about=["reasoning_effort"])
        self.refused(*words, "--documents", self.file("d.json", "[{}]"), about=["documents"])
        self.refused(*words, "--thinking-budget", "3", "--reply-format", "llama",
                     about=["thinking_budget"])


if __name__ == "__main__":
    main(__doc__)
