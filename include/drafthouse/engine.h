#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "drafthouse/cache_config.h"
#include "drafthouse/reply.h"
#include "drafthouse/sampling.h"
#include "drafthouse/status.h"

// One loaded pair (a target and, when given, its DFlash draft) that generates and scores text.
//
// The library prints nothing, installs no signal handler and never exits. Cancellation is a flag
// that the caller owns and may set from any thread or a signal handler.

namespace drafthouse {

// Bytes done of all bytes, of target and draft together; called on the calling thread.
using ProgressFn = std::function<void(std::uint64_t done, std::uint64_t total)>;

inline constexpr std::uint32_t kDraftWindow = 1024;
inline constexpr std::uint32_t kDraftSink = 64;

struct EngineOptions {
  // A Hugging Face folder, a .gguf file, or a Hugging Face id that is in the local hub cache.
  std::string target = {};
  // The same for the draft; empty: no draft, plain decoding.
  std::string draft = {};
  // Compute threads, the caller among them; 0: one per available core. Four per core (or 16) at
  // most.
  unsigned threads = 0;
  // Activations, sums, attention state, draft context and taps in fp32. Same weights; slower.
  bool compute_fp32 = false;
  // Positions a sequence may have; 0: what the model was made for.
  std::uint32_t context = 0;
  // Rows per prefill pass; 0: chosen. Results do not depend on it.
  std::uint32_t prefill_chunk = 0;
  // The draft's full layers keep keys and values of the last draft_window positions (0: all) and of
  // the first draft_sink, in whole pages, so that its memory and time do not grow with the text. At
  // least 256, and no less than its sliding layers keep, which is what they were trained with.
  // Acceptance depends on it; the ids do not.
  std::uint32_t draft_window = kDraftWindow;
  std::uint32_t draft_sink = kDraftSink;
  // Sequences that may share a pass, for those who drive several; working memory is sized for it.
  std::uint32_t sequences = 1;
  // "generic", "avx2", "avxvnni", "avx512", "avx512bf16"; empty: the best this CPU has.
  std::string isa = {};
  // Hook plugins (hooks.h), by absolute path, that this load claims, all of them or none, and gives
  // back when the engine goes. Besides these an engine uses every hook that others have installed
  // when it loads. conflict: somebody else has replaced one of the operations.
  std::vector<std::string> hook_plugins = {};
  // A prefix cache for this engine's requests; empty: none.
  std::optional<CacheConfig> cache = {};
  // A folder of this user's alone where weights are kept as they lie in memory, so that the next
  // load of the same files maps them instead of reading and packing them; empty: none. Takes as
  // much disk as the weights do. Anything in it may be deleted at any time.
  std::string packed_directory = {};
  // One line of what the cache's disk tier or the packed folder has to say, on any thread; may be
  // empty.
  std::function<void(std::string_view line)> log = {};
  ProgressFn progress = {};                   // may be empty
  const std::atomic<bool>* cancel = nullptr;  // loading stops with `cancelled` once it is set
};

// A piece of output as it comes: text that is complete so far and the ids behind it. Called on the
// thread that called generate().
using TokenFn = std::function<void(std::string_view text, std::span<const std::uint32_t> ids)>;

// The same split into reasoning, content and tool calls; a part comes once it is certain, so that
// it may hold the text of earlier calls of TokenFn. Called on the thread that called generate().
using ReplyFn = std::function<void(const ReplyPart& part)>;

struct GenerateRequest {
  std::vector<std::uint32_t> prompt_ids = {};  // at least one
  // Ids to generate at most; 0: until the context is full.
  std::uint32_t max_tokens = 0;
  // Rows of a verify pass: 1 decodes plainly, 0 lets the width policy choose every turn. More than
  // the draft's block size is invalid_argument.
  std::uint32_t width = 0;
  bool ignore_eos = false;                   // not with a grammar, which has an end of its own
  std::vector<std::string> stop = {};        // stop strings; the text ends before the first
  std::vector<std::uint32_t> stop_ids = {};  // end the answer like the model's own end ids
  SamplingOptions sampling = {};
  GrammarSpec grammar = {};  // invalid_argument, with the place, for a wrong one
  // Whether GenerateResult::logprobs is wanted, and with how many of the most likely ids (100 at
  // most).
  bool logprobs = false;
  std::uint32_t top_logprobs = 0;
  // The same of the prompt's ids from the second on; the prompt is then computed whole, without a
  // cache.
  bool prompt_logprobs = false;
  // Answers to give, 1 to 16. They share the prompt's state and differ in their draws; the first
  // one is what a request for one gives.
  std::uint32_t n = 1;
  ReplyOptions reply = {};
  TokenFn on_tokens = {};                     // of the first answer; may be empty
  ReplyFn on_reply = {};                      // the same
  const std::atomic<bool>* cancel = nullptr;  // may be null
};

// Where the time of one request went. Seconds.
struct Timings {
  double load_s = 0;
  double queue_s = 0;    // until computing (or reading from disk) began
  double restore_s = 0;  // reading cached state from disk
  double prefill_s = 0;  // until the first id
  double decode_s = 0;   // all turns
  double draft_s = 0;    // of decode_s: projecting taps and proposing
  double verify_s = 0;   // of decode_s: target passes
};

// What the prefix cache gave to a request and took from it.
struct CacheReport {
  std::uint32_t matched_tokens = 0;  // of the prompt, whole pages of 64
  std::string tier = "none";         // "none", "ram", "disk"
  std::string reason = {};           // why not more
  std::uint32_t stored_pages = 0;    // of prompt and answer, stored when the request ended
};

struct GenerateResult {
  std::vector<std::uint32_t> ids;  // generated, the ending id included when one came
  // What was generated, without special tokens, the ending id and all from a stop string on.
  // Thoughts and calls are in it as they were written.
  std::string text;
  ReplyPart reply = {};  // the same split into reasoning, content and tool calls
  std::uint32_t reasoning_tokens = 0;
  std::uint32_t prompt_tokens = 0;
  std::string finish_reason;  // "stop", "length", "tool_calls", "cancelled"
  // Ids gained by each turn, next included, before the cut by limit or stop. The id that prefill
  // gives is the first anchor and not in it.
  std::vector<std::uint32_t> accepted_per_turn;
  std::vector<std::uint32_t> width_per_turn;
  std::string mode;    // "dflash" or "plain"
  std::string reason;  // why plain: "no draft", "width"; empty for dflash
  Timings timings;
  // What the width policy measured and chose, one line for people; empty when the width was fixed.
  std::string policy;
  std::optional<std::uint64_t> seed = {};   // of the draws; none were made without
  std::vector<TokenLogprob> logprobs = {};  // of each id, when they were wanted
  std::vector<TokenLogprob> prompt_logprobs = {};
  std::vector<GenerateResult> more = {};  // the answers after the first, with n > 1
  // Measured seconds of one plain step on this pair, for the speed-up figure; 0 when not measured.
  double plain_step_s = 0;
  CacheReport cache;
};

struct ScoreRequest {
  std::vector<std::uint32_t> ids = {};  // at least two
  std::uint32_t width = 0;              // rows per pass; 0: chosen
  const std::atomic<bool>* cancel = nullptr;
};

struct ScoreResult {
  std::vector<double> logprob;     // natural log of p(ids[i] | ids[0 … i)), i >= 1
  std::vector<std::uint32_t> top;  // the most likely id at each of those places
};

struct ChatTurn {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
  // Of the assistant, for templates that show them again; empty ones are left out.
  std::string reasoning = {};
  std::vector<ToolCall> calls = {};
  // Of a tool's result: which call it answers, and the tool's name.
  std::string call_id = {};
  std::string name = {};
};

// An operation of this engine that a hook has replaced.
struct EngineHook {
  std::string operation = {};  // "matmul[q4_1,int8]"
  std::string name = {};       // the owner's
  std::string version = {};
  bool exact = true;
  std::string widths = {};  // "all" or "1, 2, 8"
};

// What was loaded, for people and scripts.
struct EngineInfo {
  std::string target;  // resolved path
  std::string draft;   // resolved path, or empty
  std::string family;
  std::string weights;  // "q4_1+q8_0": kinds of the matrices, most bytes first
  std::string isa;
  unsigned threads = 0;
  std::uint32_t context = 0;
  std::uint32_t vocab_size = 0;
  std::uint32_t block_size = 0;    // of the draft; 0 without one
  std::uint64_t weight_bytes = 0;  // packed, target and draft
  double load_s = 0;
  bool has_tokenizer = false;
  bool has_chat_template = false;
  ReplyFormat reply_format = ReplyFormat::plain;
  std::vector<std::uint32_t> eos_ids;
  std::vector<EngineHook> hooks;
};

// Confined to one thread at a time.
class Engine {
 public:
  // Loads the pair; the draft is checked against the target first (mismatch names what differs).
  static Result<std::unique_ptr<Engine>> load(const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const EngineInfo& info() const;

  // Text to ids. `add_special`: the tokenizer's own BOS where it has one. Special tokens that stand
  // in the text ("<|im_end|>") are read as special tokens. not_found without tokenizer;
  // context_overflow for a text of more bytes than the tokens of a whole sequence can hold.
  Result<std::vector<std::uint32_t>> encode(std::string_view text, bool add_special) const;
  Result<std::string> decode(std::span<const std::uint32_t> ids, bool skip_special) const;
  // The model's chat template over the messages, ready for an answer. not_found without template.
  // As with encode(), special tokens in a message's content are read as such: a content that nobody
  // vouches for can end its turn and begin another.
  Result<std::vector<std::uint32_t>> encode_chat(std::span<const ChatTurn> messages,
                                                 const ChatOptions& options = {}) const;

  // The ids do not depend on width, draft, threads or chunking; without sampling options they are
  // the most likely ones. A cancelled request is a result with finish_reason "cancelled" and what
  // there was; context_overflow when the prompt alone does not fit; invalid_argument for an id
  // outside the vocabulary.
  Result<GenerateResult> generate(const GenerateRequest& request);
  Result<ScoreResult> score(const ScoreRequest& request);

  // Waits until what was published to the cache is on disk or has been given up. What there is then
  // of the last request. cancelled at the deadline; the rest goes on being written while the engine
  // lives.
  struct Stored {
    std::uint32_t pages = 0;  // of prompt and answer, from the beginning
    std::string why_not_more = {};
  };
  Result<Stored> flush_cache(double deadline_s);

  // Bytes in use by tag ("weights", "kv_pages", …), and their sum last as "total". "text" is what
  // the tokenizers and templates of the whole process take.
  std::vector<std::pair<std::string, std::size_t>> memory() const;

  // For benches inside the project.
  struct Internals;
  Internals& internals();
  static std::unique_ptr<Engine> wrap(std::unique_ptr<Internals> internals);

 private:
  explicit Engine(std::unique_ptr<Internals> internals);
  std::unique_ptr<Internals> internals_;
};

}  // namespace drafthouse
