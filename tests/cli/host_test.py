#!/usr/bin/env python3
"""Runs the verbs that stand on a host: chat and host-demo.

usage: tests/cli/host_test.py BINARY [unittest options]
"""

import json
import os
import pty
import select
import signal
import subprocess
import time

from command import DRAFT, GGUF, NANO, NO_TEXT, PROMPT, SLOW, TARGET, Case, binary, main, run

PAIR = ["--model", TARGET, "--draft", DRAFT]
SYSTEM = "You answer questions about Python. Keep it short and give an example. " * 4


class Chat(Case):
    def chat(self, lines, *words, code=0):
        """The JSON objects that come back for these lines."""
        done = run("chat", *PAIR, "--json", "--max-tokens", "24", *words,
                   stdin="".join(line + "\n" for line in lines).encode())
        self.assertEqual(done.returncode, code, done.stderr.decode())
        return [json.loads(line) for line in done.stdout.decode().splitlines()]

    def test_each_answer_continues_from_the_cached_state_of_those_before(self):
        answers = self.chat([PROMPT, "Now explain it.", "Show an example."], "--system", SYSTEM)
        self.assertEqual([answer["answer"] for answer in answers], [1, 2, 3])
        self.assertEqual(answers[0]["cache"]["matched_tokens"], 0)
        for before, answer in zip(answers, answers[1:]):
            self.assertEqual(answer["cache"]["tier"], "ram")
            # All whole pages of the prompt before are there; the new one has at least those tokens.
            self.assertGreaterEqual(answer["cache"]["matched_tokens"], before["prompt_tokens"] // 64 * 64)
            self.assertGreater(answer["prompt_tokens"], before["prompt_tokens"])
        for answer in answers:
            self.assertEqual(answer["mode"], "dflash")
            self.assertGreaterEqual(answer["acceptance"], 1)
            self.assertGreater(answer["first_token_s"], 0)
            self.assertEqual(len(answer["accepted_per_turn"]), len(answer["width_per_turn"]))

    def test_answers_are_those_of_generate(self):
        answer, = self.chat([PROMPT])
        made = self.ok_json("generate", *PAIR, "--prompt", PROMPT, "--max-tokens", "24")
        self.assertEqual(answer["ids"], made["ids"])
        self.assertEqual(answer["prompt_tokens"], len(made["prompt_ids"]))
        text = self.ok("chat", *PAIR, "--max-tokens", "24", stdin=PROMPT.encode()).decode()
        self.assertEqual(text.rstrip("\n"), made["text"].rstrip("\n"))

    def test_drafts_and_widths_change_nothing(self):
        lines = [PROMPT, "Now explain it."]
        first = self.chat(lines)
        for words in [["--width", "1"], ["--width", "16"]]:
            self.assertEqual([a["ids"] for a in self.chat(lines, *words)], [a["ids"] for a in first])

    def test_clear_and_retry(self):
        lines = [PROMPT, "/retry", "/clear", PROMPT, "/quit", "never"]
        answers = self.chat(lines, "--system", SYSTEM)
        self.assertEqual(len(answers), 3)
        self.assertEqual({tuple(answer["ids"]) for answer in answers}, {tuple(answers[0]["ids"])})
        self.assertEqual({answer["prompt_tokens"] for answer in answers}, {answers[0]["prompt_tokens"]})
        self.assertGreater(answers[1]["cache"]["matched_tokens"], 0)

    def test_stats(self):
        first, stats = self.chat([PROMPT, "/stats"])
        stats = stats["stats"]
        self.assertEqual((stats["requests"], stats["finished"]), (1, 1))
        self.assertEqual(stats["prompt_tokens"], first["prompt_tokens"])
        self.assertEqual(stats["tokens"], len(first["ids"]))
        text = run("chat", *PAIR, "--max-tokens", "4", stdin=b"hi\n/stats\n").stderr.decode()
        self.assertIn("requests   1", text)

    def test_lines_in_a_fence_are_one_message(self):
        single = self.chat(["one\\ntwo".replace("\\n", " ")])
        fenced = self.chat(['"""one', "", 'two"""', '"""', "one", "", "two", '"""'])
        self.assertEqual(len(fenced), 2)
        self.assertGreater(fenced[0]["prompt_tokens"], single[0]["prompt_tokens"])
        again = self.chat(['"""', "one", "", "two", '"""'])
        self.assertEqual(again[0]["ids"], fenced[0]["ids"])
        # One that the end of the input leaves open is sent too.
        self.assertEqual(self.chat(['"""', "one", "", "two"])[0]["ids"], fenced[0]["ids"])

    def test_commands_that_are_none(self):
        objects = self.chat(["/retry", "/nothing", " /nothing"], code=1)
        self.assertEqual([o.get("error", {}).get("code") for o in objects],
                         ["invalid_argument", "invalid_argument", None])

    def test_a_conversation_that_grows_too_long_goes_on_after_clear(self):
        lines = [PROMPT, PROMPT * 20, "/clear", PROMPT]
        objects = self.chat(lines, "--context", "128", code=1)
        self.assertEqual(objects[1]["error"]["code"], "context_overflow")
        self.assertIn("/clear", objects[1]["error"]["message"])
        self.assertEqual(objects[2]["ids"], objects[0]["ids"])

    def test_empty_input_is_an_empty_chat(self):
        for stdin in [b"", b"\n\n  \n"]:
            self.assertEqual(self.ok("chat", *PAIR, stdin=stdin), b"")

    def test_refusals(self):
        self.refused("chat", code=2, about=["--model"])
        self.refused("chat", *PAIR, "--width", "17", code=2, about=["17", "16"])
        self.refused("chat", *PAIR, "--cache-limit", "1G", code=2, about=["--cache-dir"])
        self.refused("chat", *PAIR, "--cache-dir", "x", "--cache-limit", "1Q", code=2, about=["1Q"])
        self.refused("chat", "--model", self.folder / "none", about=["none"])
        self.refused("chat", "--model", NO_TEXT, about=["template"])

    def test_the_conversation_is_found_again_on_disk(self):
        lines = [PROMPT, "Now explain it."]
        words = ["--system", SYSTEM, "--cache-dir", self.folder / "cache"]
        first = self.chat(lines, *words)
        again = self.chat(lines, *words)
        self.assertEqual([a["ids"] for a in again], [a["ids"] for a in first])
        self.assertEqual(again[0]["cache"]["tier"], "disk")
        self.assertGreaterEqual(again[0]["cache"]["matched_tokens"], (first[0]["prompt_tokens"] - 1) // 64 * 64)

    def test_a_signal_ends_a_script(self):
        process = subprocess.Popen([binary(), "chat", *PAIR, *SLOW], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdin.write((PROMPT + "\nnever\n").encode())
        process.stdin.flush()
        process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        self.assertNotIn(b"never", out)


class Terminal(Case):
    """Chat as a person has it: on a terminal."""

    def open(self, *words):
        pid, self.screen = pty.fork()
        if pid == 0:
            os.execv(binary(), [binary(), "chat", *PAIR, *words])
        self.pid = pid
        self.seen = ""
        self.addCleanup(os.close, self.screen)
        self.addCleanup(self.leave)

    def leave(self):
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def until(self, text):
        """What the screen shows up to and with this text."""
        end = time.monotonic() + 60
        while text not in self.seen:
            self.assertLess(time.monotonic(), end, f"{text!r} is not in {self.seen!r}")
            if select.select([self.screen], [], [], 1)[0]:
                try:
                    self.seen += os.read(self.screen, 4096).decode(errors="replace")
                except OSError:
                    self.fail(f"{text!r} is not in {self.seen!r}")
        shown, self.seen = self.seen.split(text, 1)
        return shown + text

    def type(self, text):
        os.write(self.screen, text.encode())

    def exit_code(self):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if select.select([self.screen], [], [], 0.1)[0]:
                try:
                    if not os.read(self.screen, 4096):
                        break
                except OSError:
                    break
        pid, self.pid = self.pid, None
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def test_answers_and_leaves(self):
        self.open("--max-tokens", "8")
        self.until(">>> ")
        self.type(PROMPT + "\n")
        shown = self.until(">>> ")
        self.assertIn("prompt tokens cached", shown)
        self.assertIn("\x1b[2m", shown)
        self.type("/help\n")
        self.assertIn("/retry", self.until(">>> "))
        self.type("/stats\n")
        self.assertIn("requests   1", self.until(">>> "))
        self.type("\x04")
        self.assertEqual(self.exit_code(), 0)

    def test_an_interruption_ends_the_answer_and_not_the_chat(self):
        self.open("--stop", "no such text", *SLOW)
        self.until(">>> ")
        self.type("Count as far as you can.\n")
        # The terminal gives back what was typed, then comes the answer.
        self.until("can.\r\n")
        while not self.seen:
            self.seen += os.read(self.screen, 4096).decode(errors="replace")
        self.type("\x03")
        self.until("prompt tokens cached")
        self.until(">>> ")
        self.type("/stats\n")
        self.until("requests   1")
        self.until(">>> ")
        self.type("\x03")
        self.assertEqual(self.exit_code(), 130)


class HostDemo(Case):
    def models(self, *names):
        """A folder that has only these of the small pairs."""
        folder = self.folder / "models" / "nano-qwen3"
        folder.mkdir(parents=True)
        (folder / "draft").symlink_to(NANO / "draft")
        if "hf" in names:
            (folder / "target").symlink_to(NANO / "target")
        if "gguf" in names:
            (folder / "gguf").mkdir()
            (folder / "gguf" / GGUF.name).symlink_to(GGUF)
        for name in ("nano-qwen3_5", "nano-gemma4"):
            if name in names:
                (folder.parent / name).symlink_to(NANO.parent / name)
        return str(folder.parent)

    def demo(self, *words, models):
        done = run("host-demo", "--models", models, "--json", *words)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return json.loads(done.stdout), done.stderr.decode()

    def test_two_pairs_beside_each_other(self):
        found, err = self.demo("--rounds", "2", "--max-tokens", "12", models=self.models("hf", "gguf"))
        self.assertTrue(found["same_ids"])
        self.assertEqual([pair["name"] for pair in found["skipped"]], ["smollm2-135m"])
        self.assertIn("smollm2-135m is skipped", err)
        self.assertEqual([model["name"] for model in found["models"]], ["nano-qwen3", "nano-qwen3-q8_0"])
        for model in found["models"]:
            self.assertEqual((model["requests"], model["finished"]), (4, 4))
            self.assertEqual(model["manager_rebuilds"], 0)
            self.assertEqual(model["differing_answers"], 0)
            self.assertGreater(model["hit_tokens"]["ram"], 0)
            self.assertEqual(model["hit_tokens"]["disk"], 0)
            self.assertGreater(model["tokens"], 0)
            self.assertGreater(model["memory"], 1_000_000)

    def test_families_beside_each_other(self):
        models = self.models("hf", "nano-qwen3_5", "nano-gemma4")
        found, _ = self.demo("--rounds", "2", "--talks", "1", "--max-tokens", "12", models=models)
        self.assertTrue(found["same_ids"])
        self.assertEqual([model["name"] for model in found["models"]],
                         ["nano-qwen3", "nano-qwen3_5", "nano-gemma4"])
        for model in found["models"]:
            self.assertEqual((model["requests"], model["finished"]), (2, 2))
            self.assertGreater(model["hit_tokens"]["ram"], 0)

    def test_the_second_time_from_disk(self):
        models = self.models("hf")
        words = ["--rounds", "1", "--talks", "1", "--max-tokens", "4", "--cache-dir", self.folder / "cache"]
        self.demo(*words, models=models)
        found, _ = self.demo(*words, models=models)
        self.assertTrue(found["same_ids"])
        self.assertGreater(found["models"][0]["hit_tokens"]["disk"], 0)

    def test_a_table_for_people(self):
        text = self.ok("host-demo", "--models", self.models("hf"), "--rounds", "1", "--talks", "1",
                       "--max-tokens", "4").decode()
        self.assertIn("nano-qwen3", text)
        self.assertIn("as alone", text)

    def test_no_pair_at_all(self):
        done = run("host-demo", "--models", self.folder, "--json")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(json.loads(done.stdout)["error"]["code"], "not_found")


if __name__ == "__main__":
    main(__doc__)
