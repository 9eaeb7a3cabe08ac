#!/usr/bin/env python3
"""Help, and words and options of the drafthouse binary that are wrong as they stand.

usage: tests/cli/usage_test.py BINARY [unittest options]
"""

from command import DRAFT, TARGET, Case, main, run

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


if __name__ == "__main__":
    main(__doc__)
