#!/usr/bin/env python3
"""Hook plugins given to the drafthouse binary.

usage: tests/cli/hooks_test.py BINARY [unittest options]
"""

import pathlib

from command import DRAFT, GGUF, TARGET, Case, binary, main


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
