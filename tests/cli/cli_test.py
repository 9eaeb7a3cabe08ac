#!/usr/bin/env python3
"""Runs the drafthouse binary as people and scripts do.

usage: tests/cli/cli_test.py BINARY [unittest options]

Everything runs on the small pair in tests/data: what is tested is the surface (exit codes, messages,
JSON), not the numbers.
"""

import json
import os
import pathlib
import shutil
import subprocess

from command import DRAFT, GGUF, NANO, NO_TEXT, PROMPT, TARGET, Case, binary, main, run

VERBS = ["chat", "generate", "score", "tokenize", "inspect", "cache", "host-demo", "bench", "doctor",
         "completion", "help"]


class Help(Case):
    def test_every_verb_has_help_with_examples(self):
        top = self.ok("--help").decode()
        for verb in VERBS:
            self.assertIn(verb, top)
            text = self.ok(verb, "--help").decode()
            self.assertIn("Examples:\n", text, verb)
            self.assertIn(f"drafthouse {verb}", text, verb)
        for verb in ["ls", "show", "verify", "prune", "clear"]:
            text = self.ok("cache", verb, "--help").decode()
            self.assertIn("Examples:\n", text, verb)
            self.assertIn(f"drafthouse cache {verb}", text, verb)

    def test_help_is_a_verb_too(self):
        self.assertEqual(self.ok("help"), self.ok("--help"))
        for verb in VERBS:
            self.assertEqual(self.ok("help", verb), self.ok(verb, "--help"), verb)
        self.assertEqual(self.ok("help", "cache", "ls"), self.ok("cache", "ls", "--help"))
        self.refused("help", "genrate", code=2, about=["genrate", "did you mean generate"])
        self.refused("help", "generate", "twice", code=2, about=["twice"])
        self.refused("hepl", code=2, about=["did you mean help"])

    def test_version(self):
        self.assertRegex(self.ok("--version").decode(), r"^drafthouse \d+\.\d+\.\d+\n$")

    def test_no_verb_is_wrong_usage(self):
        done = run()
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stdout, b"")
        self.assertIn(b"generate", done.stderr)

    def test_mistyped_words_get_a_suggestion(self):
        self.refused("genrate", code=2, about=["genrate", "generate"])
        self.refused("generate", "--modle", TARGET, code=2, about=["--modle", "--model"])
        self.refused("inspect", TARGET, "twice", code=2, about=["twice"])
        self.refused("inspect", TARGET, "--draft", DRAFT, "--draft", DRAFT, code=2, about=["once"])
        self.refused("--verbose", code=2, about=["--verbose", "verb"])


class WrongUsage(Case):
    def test_generate_takes_one_prompt(self):
        self.refused("generate", "--model", TARGET, code=2, about=["--prompt"])
        self.refused("generate", "--model", TARGET, "--prompt", "a", "--ids", "b", code=2,
                     about=["--ids"])
        self.refused("generate", "--prompt", "a", code=2, about=["--model"])

    def test_width_is_between_one_and_the_block_size(self):
        pair = ["generate", "--model", TARGET, "--draft", DRAFT, "--prompt", "hi", "--width"]
        self.refused(*pair, "17", code=2, about=["17", "16"])
        for width in ["0", "-1", "x", "1.5", "", "99999999999999999999"]:
            self.refused(*pair, width, code=2, about=["--width"])

    def test_numbers_and_words_are_checked(self):
        run_words = ["generate", "--model", TARGET, "--prompt", "hi"]
        for name, value in [("--max-tokens", "-1"), ("--threads", "0"), ("--threads", "1e3"),
                            ("--context", "99999999999"), ("--prefill-chunk", "many"),
                            ("--compute", "fp8"), ("--isa", "sse")]:
            self.refused(*run_words, name, value, code=2, about=[name, value])
        self.refused(*run_words, "--stop", "", code=2, about=["--stop"])
        self.refused(*run_words, "--draft", DRAFT, "--draft-window", "100", code=2, about=["--draft-window", "100", "256"])
        self.refused(*run_words, "--draft", DRAFT, "--no-draft", code=2, about=["--no-draft"])
        self.refused("completion", "tcsh", code=2, about=["tcsh"])

    def test_options_that_would_do_nothing(self):
        words = ["generate", "--model", "nothing", "--prompt", "hi"]
        for flag in ["--template-options", "--packed-dir", "--cache-dir"]:
            self.refused(*words, flag, "", code=2, about=[flag, "empty"])
        self.refused(*words, "--min-tokens", "9", "--max-tokens", "8", code=2,
                     about=["--min-tokens 9", "--max-tokens 8"])
        self.refused("tokenize", "--model", TARGET, "Hello there", code=2, about=["standard input"])
        for flag in ["--json-schema", "--tools"]:
            self.refused(*words, flag, '{"type": "object"}', about=["a file is wanted"])


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


def hook_plugin(name):
    return pathlib.Path(binary()).resolve().parents[1] / "tests" / "hooks" / f"hook_{name}.so"


class HookPlugins(Case):
    def test_generate_with_an_exact_hook(self):
        words = ["generate", "--model", GGUF, "--draft", DRAFT, "--ids", self.ids_file([5, 6, 7, 8]),
                 "--max-tokens", "12", "--ignore-eos"]
        plain = self.ok_json(*words)
        hooked = self.ok_json(*words, "--hook-plugin", hook_plugin("example"))
        self.assertEqual(hooked["ids"], plain["ids"])
        self.assertEqual(plain["hooks"], [])
        self.assertEqual(hooked["hooks"], [{"operation": "matmul[q8_0,int8]", "name": "example",
                                            "version": "1.0", "exact": True, "widths": "1"}])

    def test_doctor_runs_the_gate(self):
        found = self.ok_json("doctor", "--hook-plugin", hook_plugin("approximate"))["hooks"]
        self.assertEqual([h["operation"] for h in found["installed"]],
                         ["matmul[bf16,bf16]", "attend_page[bf16]"])
        self.assertIn("rms_norm", found["operations"])
        self.refused("doctor", "--hook-plugin", hook_plugin("wrong"), about=["refused", "other bits"])

    def test_refusals_come_before_the_model_loads(self):
        words = ["generate", "--model", TARGET, "--prompt", "a"]
        self.refused(*words, "--hook-plugin", "plugin.so", code=2, about=["absolute"])
        self.refused(*words, "--hook-plugin", "/no/such/plugin.so", about=["/no/such/plugin.so"])
        self.refused(*words, "--hook-plugin", hook_plugin("example"), "--hook-plugin",
                     hook_plugin("other_owner"), about=["matmul[q8_0,int8]", "example@1.0",
                                                        "test-other@1.0"])


if __name__ == "__main__":
    main(__doc__)
