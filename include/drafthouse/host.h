#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "drafthouse/cache_config.h"
#include "drafthouse/engine.h"
#include "drafthouse/status.h"

// Several pairs in one process: each with its own engine thread and prefix cache, all under one
// memory budget and one set of compute threads.
//
//   auto host = Host::create({}).value();
//   host->load({.name = "chat", .target = "model.gguf", .draft = "draft.gguf"});
//   auto stream = host->submit({.model = "chat", .messages = {{"user", "Hello"}}}).value();
//   while (auto event = stream->next(60)) { … }
//
// The library prints nothing, installs no signal handler and never exits. No exception leaves it.
// Every function may be called from any thread unless it says otherwise. Only hooks are
// process-wide; several hosts may live in one process. After fork() without exec() every call
// returns `closed`.

namespace drafthouse {

enum class LogLevel : std::int32_t { info, warning, error };
// One line, without a newline. Called on the thread that has something to say, with no lock held;
// must not call the host.
using LogFn = std::function<void(LogLevel level, std::string_view line)>;

struct HostOptions {
  // Bytes of weights, pages, activations and queues of all models; 0: nine tenths of the machine's.
  std::size_t memory_bytes = 0;
  // Compute threads that all engines share; 0: one per available core.
  unsigned threads = 0;
  // A model without a request for this long is unloaded, its cache kept; 0: never. Pinned ones
  // stay.
  double idle_unload_s = 0;
  // After a failed load the same model is not tried again for this long.
  double load_cooldown_s = 5;
  // Requests for a model that is not loaded wait at most this long for others' requests to end by
  // themselves before no more of those are begun.
  double switch_after_s = 2;
  // Shared libraries with hooks, by absolute path, loaded before any model.
  std::vector<std::string> hook_plugins = {};
  LogFn log = {};  // may be empty
  // How far a load is, bytes done of all bytes of a model; on the thread that loads. May be empty.
  std::function<void(std::string_view model, std::uint64_t done, std::uint64_t total)>
      load_progress = {};
};

// A pair and how it is served.
struct ModelSpec {
  std::string name = {};    // what requests call it; unique in the host
  std::string target = {};  // see EngineOptions
  std::string draft = {};   // empty: plain decoding
  std::string label = {};   // tells two loads of one pair apart
  bool compute_fp32 = false;
  std::uint32_t context = 0;  // positions of a sequence; 0: what the model was made for
  std::uint32_t draft_window = kDraftWindow;  // see EngineOptions
  std::uint32_t draft_sink = kDraftSink;
  std::string isa = {};               // see EngineOptions
  std::string packed_directory = {};  // see EngineOptions
  CacheConfig cache = {};
  double weight = 1.0;           // share of the compute threads beside other models that are busy
  bool pinned = false;           // never unloaded to make room
  std::uint32_t sequences = 16;  // that run at once, 1 … 64
  std::uint32_t queue = 64;      // requests that wait for one of them
};

struct SubmitRequest {
  std::string model = {};
  // Exactly one of the three: a conversation (through the model's chat template), a text as it is,
  // ids. Texts are UTF-8; invalid_argument names the field and the byte otherwise.
  std::vector<ChatTurn> messages = {};
  std::string prompt = {};
  std::vector<std::uint32_t> prompt_ids = {};

  std::uint32_t max_tokens = 0;  // 0: until the context is full
  std::uint32_t width = 0;       // rows of a verify pass, see GenerateRequest
  bool ignore_eos = false;
  std::vector<std::string> stop = {};
  std::vector<std::uint32_t> stop_ids = {};
  SamplingOptions sampling = {};
  GrammarSpec grammar = {};
  bool logprobs = false;  // see GenerateRequest
  std::uint32_t top_logprobs = 0;
  bool prompt_logprobs = false;
  ChatOptions chat = {};  // with messages; its tools are reply's too
  ReplyOptions reply = {};
  std::uint32_t n = 1;  // answers; tokens of all of them come as they are made
  bool use_cache = true;
  std::string salt = {};  // tenant: requests with different salts never share cached state
  int priority = 0;       // higher first
  double timeout_s = 0;   // from submission to the last event; 0: none
  std::size_t event_queue =
      256;  // token events that wait for next(); a full queue pauses the sequence
};

struct Event {
  enum class Kind : std::int32_t {
    started,    // cache: what the lookup found
    tokens,     // text, ids, reply
    finished,   // result; terminal
    cancelled,  // result holds what there was, status why; terminal
    failed,     // the same
  };
  Kind kind = Kind::tokens;
  std::string text = {};
  std::vector<std::uint32_t> ids = {};
  ReplyPart reply = {};      // what became certain of it; may be of the text of earlier events
  std::uint32_t choice = 0;  // of tokens: which answer they belong to
  CacheReport cache = {};
  GenerateResult result = {};
  Status status = {};

  bool terminal() const { return kind >= Kind::finished; }
};

// The events of one request. Exactly one terminal event comes, after which next() gives nothing.
// One thread at a time may wait in next(). Dropping the stream cancels the request. May outlive the
// host.
class Stream {
 public:
  virtual ~Stream() = default;
  // The next event; nothing when none came within the time or the terminal one has been taken.
  virtual std::optional<Event> next(double timeout_s) = 0;
  // Idempotent. The terminal event still comes.
  virtual void cancel() = 0;
  // Whether the terminal event has been taken.
  virtual bool over() const = 0;
  // Readable while next() would not wait. Owned by the stream.
  virtual int event_fd() const = 0;
};

struct UnloadOptions {
  double deadline_s = 30;   // running requests may end until then; the rest fails
  bool keep_cache = false;  // keep the cache in memory for a later load
};

enum class ModelState : std::int32_t { registered, waiting, loading, ready, unloading, failed };
std::string_view name_of(ModelState state);

struct ModelStats {
  std::string name;
  ModelState state = ModelState::registered;
  std::string why = {};  // of the last failure
  EngineInfo info = {};  // while loaded
  bool pinned = false;
  std::uint32_t queued = 0;  // requests that wait, for the model or in it
  std::uint32_t running = 0;
  std::uint64_t requests = 0;
  std::uint64_t finished = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t failed = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t generated_tokens = 0;
  std::uint64_t turns = 0;
  std::uint64_t turn_tokens = 0;  // gained by turns; ÷ turns: the acceptance length
  std::uint64_t preempted = 0;
  // States of recurrent layers that the cache went without, for want of memory.
  std::uint64_t checkpoints_skipped = 0;
  std::uint64_t loads = 0;
  std::uint64_t unloads = 0;  // by request, idle time or for room
  // The prefix cache, since the identity was first resolved.
  std::uint64_t cache_lookups = 0;
  std::uint64_t cache_hits = 0;
  std::uint64_t ram_hit_tokens = 0;
  std::uint64_t disk_hit_tokens = 0;
  std::uint64_t cache_pages = 0;  // in RAM
  std::uint64_t cache_bytes = 0;
  std::uint64_t evicted_own = 0;
  std::uint64_t evicted_pressure = 0;
  std::uint64_t manager_rebuilds = 0;
  std::uint64_t memory_bytes = 0;  // weights it alone uses, pages, activations
  std::uint64_t shared_weight_bytes = 0;
};

struct HostStats {
  std::size_t memory_limit = 0;
  std::size_t memory_used = 0;
  std::size_t memory_peak = 0;
  std::vector<ModelStats> models = {};  // by name
};

// A row of the ledger: `model` is empty for what belongs to none.
struct LedgerRow {
  std::string model;
  std::string tag;
  std::size_t bytes = 0;
};

class Host {
 public:
  static Result<std::unique_ptr<Host>> create(const HostOptions& options);
  // Ends all requests (`closed`), waits for its threads, writes what the disk tiers lack.
  virtual ~Host() = default;

  // Makes a model known without loading it; requests load it when they come. conflict when the name
  // is taken by another one.
  virtual Status add(const ModelSpec& spec) = 0;
  // Loads a model (a new one, or one that is known; then `spec` must be the same). Waits; when
  // several callers do, it is loaded once. no_memory with the arithmetic, or the cause, when it
  // fails: then everything is as before.
  virtual Status load(const ModelSpec& spec) = 0;
  virtual Status load(std::string_view name) = 0;
  // New requests wait for a reload, running ones may end until the deadline. A model that is not
  // loaded is nothing to do; an unknown one is not_found.
  virtual Status unload(const std::string& name, const UnloadOptions& options = {}) = 0;
  // Unloads and forgets.
  virtual Status remove(const std::string& name, const UnloadOptions& options = {}) = 0;
  // Changes a model's prefix cache while it runs: entries that stay valid are kept, requests that
  // run go on as they began, other models notice nothing.
  virtual Status reconfigure(const std::string& name, const CacheConfig& cache) = 0;
  virtual Status pin(const std::string& name, bool on) = 0;

  // Returns at once. not_found for an unknown model; invalid_argument, context_overflow, busy with
  // their reasons; otherwise a stream.
  virtual Result<std::unique_ptr<Stream>> submit(const SubmitRequest& request) = 0;

  // Drops cached state of a model: of one salt, or all. Bytes dropped.
  virtual Result<std::size_t> clear_cache(const std::string& name,
                                          const std::optional<std::string>& salt = {}) = 0;
  // Waits until what was published is on disk or has been given up (a full or failing disk is told
  // in the log and counted), at most until the deadline.
  virtual Status flush_cache(double deadline_s) = 0;

  virtual HostStats stats() const = 0;
  // Every byte that the host accounts for.
  virtual std::vector<LedgerRow> ledger() const = 0;

  // Takes no new requests (`closed`) and waits for those there are; cancelled at the deadline, then
  // the rest goes on.
  virtual Status drain(double deadline_s) = 0;
};

}  // namespace drafthouse
