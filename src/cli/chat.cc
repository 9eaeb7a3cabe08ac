#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <memory>
#include <optional>

#include "cli/cache_options.h"
#include "cli/chat_console.h"
#include "cli/chat_report.h"
#include "cli/conversation.h"
#include "cli/host_log.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/reply_flags.h"
#include "cli/sampling_flags.h"
#include "cli/text_check.h"
#include "cli/verb.h"
#include "drafthouse/host.h"

namespace drafthouse::cli {
namespace {

struct ChatFlags {
  ModelOptions model;
  CacheOptions cache;
  std::string system;
  std::uint32_t max_tokens = 0;
  std::string width = "auto";
  std::vector<std::string> stop;
  SamplingFlags sampling;
  ReplyFlags reply;
  bool json = false;
};

constexpr char kName[] = "chat";
constexpr double kFlushDeadline = 30;

constexpr char kExamples[] = R"(Examples:
  drafthouse chat --model SmolLM2-135M-Instruct.Q4_1.gguf --draft smollm2-135m-dflash.gguf
  drafthouse chat --model ./Qwen3-4B --draft ./Qwen3-4B-DFlash --cache-dir ~/.cache/drafthouse
  printf 'Name a colour.\nAnd another one.\n' | drafthouse chat --model ./Qwen3-4B --json

A line is a message; lines between """ and """ are one. Each answer continues from the cached state of
all before it. Ctrl-C interrupts an answer, at the prompt it leaves, as Ctrl-D does. /help lists what
else can be typed. From a pipe every line is answered in turn; --json prints one object per answer.
Exit codes: 0 done, 1 failed (from a pipe: some message got no answer), 2 wrong usage, 130 interrupted,
141 nobody reads the output any more.)";

constexpr char kHelp[] =
    R"(/clear   forget the conversation (what is cached stays)
/retry   answer the last message again
/stats   what the model and its cache have done
/quit    leave; so do Ctrl-D, and Ctrl-C at the prompt
/help    this list
Lines between """ and """ are one message. Ctrl-C interrupts an answer. A message that begins with / is
sent as it is when a space comes first.
)";

// The verb once its model is loaded.
class Chat {
 public:
  Chat(Host& host, const ChatFlags& options, const ReadReply& reply)
      : host_(host),
        options_(options),
        console_(watch_, options.json),
        conversation_(host, base_request(options, reply), options.system) {}

  int run() {
    const ModelStats model = stats();
    if (console_.terminal()) {
      console_.show(fmt::format("{}{}. /help lists what can be typed besides messages.\n",
                                model.info.target,
                                model.info.draft.empty() ? ", no draft" : " with its draft"));
    }
    std::string text;
    while (!leaving_) {
      switch (console_.read(text)) {
        case LineReader::Got::line: take(text); break;
        case LineReader::Got::end:
          if (console_.terminal()) console_.show("\n");
          leaving_ = true;
          break;
        case LineReader::Got::signal:
          if (console_.terminal()) console_.show("\n");
          exit_code_ = kInterrupted;
          leaving_ = true;
          break;
        case LineReader::Got::too_long:
          failed(
              Status(Code::invalid_argument,
                     fmt::format("a line of more than {} MiB was skipped", kInputBytesMax >> 20)));
          break;
        case LineReader::Got::failed:
          return fail(Status(Code::internal, "cannot read standard input: " + text), options_.json);
      }
    }
    return exit_code_;
  }

 private:
  static SubmitRequest base_request(const ChatFlags& options, const ReadReply& reply) {
    SubmitRequest request;
    request.model = kName;
    request.max_tokens = options.max_tokens;
    request.width = width_of(options.width);
    request.stop = options.stop;
    request.sampling = read_sampling(options.sampling).options;
    request.chat = reply.chat;
    request.reply = reply.reply;
    return request;
  }

  ModelStats stats() const {
    for (const ModelStats& model : host_.stats().models) {
      if (model.name == kName) return model;
    }
    return {};
  }

  // A person sees the line and goes on; a script finds it in the exit code.
  void failed(const Status& status) {
    const int exit_code = fail(status, options_.json);
    if (exit_code == kReaderGone) return note(exit_code);
    if (!console_.terminal()) exit_code_ = kFailed;
  }

  void take(const std::string& text) {
    if (!text.starts_with('/')) return answer(conversation_.say(text, listener()));
    const std::string command = text.substr(0, text.find_last_not_of(" \t") + 1);
    if (command == "/quit" || command == "/exit") {
      leaving_ = true;
    } else if (command == "/help") {
      console_.show(kHelp);
    } else if (command == "/clear") {
      conversation_.clear();
      last_.reset();
    } else if (command == "/stats") {
      show_stats();
    } else if (command != "/retry") {
      failed(Status(Code::invalid_argument,
                    fmt::format("{} is not a command; /help lists them", command)));
    } else if (!conversation_.can_retry()) {
      failed(Status(Code::invalid_argument, "/retry: there is no message to answer again"));
    } else {
      answer(conversation_.retry(listener()));
    }
  }

  void show_stats() {
    const HostStats host = host_.stats();
    const ModelStats model = stats();
    if (options_.json) {
      note(print_stats_json(host, model));
    } else {
      console_.show(stats_text(host, model, last_.has_value() ? &*last_ : nullptr));
    }
  }

  Conversation::Listener listener() {
    Conversation::Listener listener;
    listener.descriptor = watch_.descriptor();
    listener.piece = [this](const Event& event) {
      note(console_.piece(event.text, event.reply));
      return !lost_;
    };
    listener.stop = [this] {
      const int signal = watch_.take();
      if (signal != 0 && signal != SIGINT) ended_ = true;
      interrupted_ |= signal != 0;
      return interrupted_;
    };
    return listener;
  }

  void answer(const ChatAnswer& answer) {
    note(console_.end_answer());
    if (lost_) return;
    if (!answer.status.ok()) {
      failed(answer.status.code() == Code::context_overflow
                 ? Status(Code::context_overflow,
                          answer.status.message() + " (/clear begins a new conversation)")
                 : answer.status);
    } else {
      last_ = answer;
      ++answers_;
      if (options_.json) {
        note(print_answer_json(answers_, answer));
      } else {
        console_.figures(figures_line(answer));
      }
    }
    // A script that is interrupted ends; a person goes on, unless all of it is to end.
    if (!lost_ && interrupted_ && (ended_ || !console_.terminal())) {
      exit_code_ = kInterrupted;
      leaving_ = true;
    }
    interrupted_ = false;
  }

  // What came of writing to standard output: once it takes nothing more, all is over.
  void note(int written) {
    if (written == kOk || lost_) return;
    lost_ = true;
    exit_code_ = written;
    leaving_ = true;
  }

  Host& host_;
  const ChatFlags& options_;
  SignalWatch watch_;
  ChatConsole console_;
  Conversation conversation_;
  std::optional<ChatAnswer> last_;
  std::uint32_t answers_ = 0;
  int exit_code_ = kOk;
  bool leaving_ = false;
  bool interrupted_ = false;  // this answer
  bool ended_ = false;        // by a signal that asks for the end of all
  bool lost_ = false;         // standard output takes nothing more
};

std::string refusal(const ChatFlags& options) {
  for (const std::string& stop : options.stop) {
    if (stop.empty()) return "--stop needs a text of at least one character";
  }
  if (const std::string wrong = read_sampling(options.sampling).wrong; !wrong.empty()) return wrong;
  if (const std::string wrong = reply_refusal(options.reply); !wrong.empty()) return wrong;
  if (const std::string wrong = cache_refusal(options.cache); !wrong.empty()) return wrong;
  return pair_refusal(options.model, options.width);
}

Result<std::unique_ptr<Host>> load(const ChatFlags& options, HostLog& log) {
  // Gone once the model is there, which the host may not know.
  const auto bar = std::make_shared<ProgressBar>();
  HostOptions host_options;
  host_options.load_progress = [show = bar->callback(), alive = std::weak_ptr(bar)](
                                   std::string_view, std::uint64_t done, std::uint64_t total) {
    const auto held = alive.lock();
    if (held != nullptr && show) show(done, total);
  };
  host_options.threads = options.model.threads;
  host_options.hook_plugins = options.model.hook_plugins;
  host_options.log = log.callback();
  Result<std::unique_ptr<Host>> host = Host::create(host_options);
  if (!host.ok()) return host.status();
  const Status loaded = host.value()->load(model_spec(kName, options.model, options.cache));
  if (!loaded.ok()) return loaded;
  for (const ModelStats& model : host.value()->stats().models) {
    if (model.info.has_chat_template) continue;
    return Status(
        Code::not_found,
        fmt::format("{} has no chat template: use drafthouse generate --raw", model.info.target));
  }
  return host;
}

int run_chat(const ChatFlags& options) {
  tell_idle(options.sampling);
  tell_idle(options.model);
  if (const std::string wrong = refusal(options); !wrong.empty()) return usage_error(kName, wrong);
  const Result<ReadReply> reply = read_reply(options.reply);
  if (!reply.ok()) return fail(reply.status(), options.json);
  if (const Status s = check_reply(options.model.target, reply.value(), true); !s.ok()) {
    return fail(s, options.json);
  }
  HostLog log;
  Result<std::unique_ptr<Host>> host = load(options, log);
  if (!host.ok()) return fail(host.status(), options.json);
  log.open();
  int exit_code = kOk;
  {
    Chat chat(*host.value(), options, reply.value());
    exit_code = chat.run();
  }
  flush_cache(*host.value(), options.cache, kFlushDeadline);
  return exit_code;
}

}  // namespace

void add_chat(CLI::App& app, RunFn& run) {
  auto options = std::make_shared<ChatFlags>();
  CLI::App* verb =
      app.add_subcommand(kName, "Talk with a model; answers continue from cached state");
  add_target_option(*verb, options->model);
  add_draft_options(*verb, options->model);
  add_cache_options(*verb, options->cache);
  verb->add_option("--system", options->system, "What the model is told before everything else")
      ->type_name("TEXT");
  verb->add_option("--max-tokens", options->max_tokens,
                   "Tokens of an answer at most [until the context is full]")
      ->type_name("N")
      ->check(number_check(0, kPositionsMax));
  add_width_option(*verb, options->width, WidthKind::number_or_auto,
                   "Tokens per verify pass, 1 to the draft's block size [auto: what pays]");
  verb->add_option("--stop", options->stop, "End answers before this text; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  add_basic_sampling(*verb, options->sampling);
  add_reply_flags(*verb, options->reply);
  add_compute_options(*verb, options->model);
  verb->remove_option(verb->get_option("--prefill-chunk"));
  verb->add_flag("--json", options->json, "Print one JSON object per answer instead of text");
  verb->footer(kExamples);
  verb->callback([&run, options] { run = [options] { return run_chat(*options); }; });
}

}  // namespace drafthouse::cli
