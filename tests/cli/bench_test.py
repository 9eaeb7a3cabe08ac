#!/usr/bin/env python3
"""Runs `drafthouse bench` on small shapes and checks that its report is whole and hangs together.

usage: tests/cli/bench_test.py BINARY [unittest options]

No figure is held against a time: a busy machine is slow, and still right.
"""

import json
import signal
import subprocess
import sys
import time
import unittest

binary = ""
QUICK = ["bench", "--shape", "smollm2-135m", "--format", "q8_0", "--quick"]


def run(*words):
    return subprocess.run([binary, *words], capture_output=True, text=True, timeout=300)


def report(*words):
    done = run(*words, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["busy"] == (found["cpu_share"] < 0.7), found["cpu_share"]
    if found["busy"]:
        assert "this machine is busy" in done.stderr and done.stderr.count("\n") == 1, done.stderr
    else:
        assert done.stderr == "", done.stderr
    return found


class Bench(unittest.TestCase):
    def test_report_is_whole(self):
        found = report(*QUICK, "--contexts", "65,0", "--threads", "2")
        self.assertEqual(found["cpu"]["threads"], 2)
        self.assertTrue(found["cpu"]["isa"])
        for name in ("before", "after"):
            self.assertGreater(found["bandwidth_gbps"][name], 0)
        for name in ("float", "int8"):
            self.assertGreater(found["peak_gops"][name], 0)
        self.assertEqual([c["context"] for c in found["contexts"]], [0, 65])
        for context in found["contexts"]:
            self.check_context(context)
        memory = found["memory"]
        self.assertEqual(memory["total"], sum(v for k, v in memory.items() if k != "total"))
        self.assertGreater(memory["weights"], found["weight_bytes"])

    def check_context(self, context):
        widths = context["widths"]
        self.assertEqual([w["width"] for w in widths], [1, 2, 4, 8, 12, 16])
        self.assertEqual(widths[0]["ratio"], 1)
        for w in widths:
            for name in ("ms", "bandwidth_share", "gops", "roofline_share"):
                self.assertGreater(w[name], 0, name)
            self.assertAlmostEqual(w["ratio"], w["ms"] / widths[0]["ms"], places=6)
            self.assertGreaterEqual(w["roofline_share"], w["bandwidth_share"])
        for name in ("draft_ms", "turn_ms", "prefill_tok_s", "prefill_peak_share"):
            self.assertGreater(context[name], 0, name)
        self.assertAlmostEqual(context["turn_ratio"], context["turn_ms"] / widths[0]["ms"], places=6)
        parts = context["draft_ms"] + widths[-1]["ms"]
        self.assertAlmostEqual(context["turn_over_parts"], context["turn_ms"] / parts, places=6)
        self.assertTrue(0 <= context["outside_kernels_share"] < 1)

    def test_without_draft_there_is_no_turn(self):
        context = report(*QUICK, "--no-draft")["contexts"][0]
        self.assertIsNone(context["draft_ms"])
        self.assertIsNone(context["turn_ms"])
        self.assertIsNone(context["turn_ratio"])
        self.assertGreater(context["prefill_tok_s"], 0)

    def test_options_reach_a_shape(self):
        # Rows of a pass decide how much scratch it needs.
        scratch = [report(*QUICK, "--no-draft", "--compute", "fp32", "--prefill-chunk", rows)
                   ["memory"]["activations"] for rows in ("32", "256")]
        self.assertLess(scratch[0], scratch[1])

    def test_text_and_profile(self):
        done = run(*QUICK, "--profile")
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("bandwidth", "roofline", "prefill of 64 tokens", "turn of width 16",
                     "linear 576 -> 49152", "attention", "outside"):
            self.assertIn(word, done.stdout)

    def test_wrong_words(self):
        self.assertEqual(run("bench", "--shape", "qwen9-1t").returncode, 2)
        self.assertEqual(run("bench", "--shape", "qwen3-8b", "--model", "x").returncode, 2)
        # Random weights are of no files, so there is nothing that a later load could take up.
        refused = run("bench", "--shape", "qwen3-8b", "--packed-dir", "x")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("--packed-dir requires --model", refused.stderr)
        self.assertEqual(run("bench", "--format", "q2").returncode, 2)
        self.assertEqual(run("bench", "--contexts", "1,x").returncode, 2)
        done = run(*QUICK, "--contexts", "8000")
        self.assertEqual(done.returncode, 1)
        self.assertIn("8192", done.stderr)

    def test_interrupt(self):
        started = subprocess.Popen([binary, "bench", "--shape", "smollm2-135m", "--contexts", "4000"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(1.5)
        started.send_signal(signal.SIGINT)
        started.communicate(timeout=60)
        self.assertEqual(started.returncode, 130)


if __name__ == "__main__":
    binary = sys.argv.pop(1)
    unittest.main()
