#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

// The verbs of the command line. Each has one source file that exports add_<verb>(): it describes
// the verb's options in a subcommand of `app`, with examples in the footer, and sets `run` in that
// subcommand's callback, which CLI11 calls only for the verb that was typed:
//
//   void add_verb(CLI::App& app, RunFn& run) {
//     auto options = std::make_shared<Options>();
//     CLI::App* verb = app.add_subcommand("verb", "What it does");
//     verb->add_option("--kind", options->kind, "…")->type_name("one|two");
//     verb->callback([&run, options] { run = [options] { return run_verb(*options); }; });
//   }
//
// Completion reads option types: "one|two" completes these words, an upper-case name that ends in
// FILE, FOLDER, MODEL, TARGET or DRAFT completes paths, any other completes nothing.

namespace drafthouse::cli {

enum ExitCode : int {
  kOk = 0,
  kFailed = 1,
  kUsage = 2,
  kInterrupted = 130,
  kReaderGone = 141,  // what a shell says of a program that SIGPIPE ended
};

// What a verb does after the whole command line was parsed. Returns the exit code.
using RunFn = std::function<int()>;

// The verbs that were added so far.
std::vector<std::string> verb_names(const CLI::App& app);

// Says that `word` is none of them, and which one was perhaps meant. Returns the exit code.
int unknown_verb(const CLI::App& app, const std::string& word);

void add_chat(CLI::App& app, RunFn& run);
void add_generate(CLI::App& app, RunFn& run);
void add_score(CLI::App& app, RunFn& run);
void add_tokenize(CLI::App& app, RunFn& run);
void add_inspect(CLI::App& app, RunFn& run);
void add_cache(CLI::App& app, RunFn& run);
void add_host_demo(CLI::App& app, RunFn& run);
void add_bench(CLI::App& app, RunFn& run);
void add_doctor(CLI::App& app, RunFn& run);
void add_completion(CLI::App& app, RunFn& run);
// Last: it tells about all others.
void add_help(CLI::App& app, RunFn& run);

}  // namespace drafthouse::cli
