#include "capi/structs.h"

#include <limits>
#include <utility>

namespace drafthouse::capi {
namespace {

Status invalid(std::string message) { return Status(Code::invalid_argument, std::move(message)); }

Status check_reserved(std::string_view name, std::uint32_t reserved) {
  if (reserved == 0) return {};
  return invalid(std::string(name) + ".reserved is not 0: use " + std::string(name) + "_init");
}

Status narrow(std::string_view name, std::uint64_t in, std::size_t& out) {
  if (in > std::numeric_limits<std::size_t>::max()) {
    return invalid(std::string(name) + " is more than this machine can address");
  }
  out = static_cast<std::size_t>(in);
  return {};
}

// Elements of an array, which all have the size of the first one.
template <class T, class Read>
Status read_each(std::string_view field, std::string_view type, const T* in, std::size_t count,
                 Read&& read_one) {
  if (count == 0) return {};
  if (in == nullptr) return invalid(std::string(field) + " is null with a count");
  const std::size_t step = in[0].size;
  if (Status status = check_size(type, step); !status.ok()) return status;
  if (step % alignof(T) != 0) {
    return invalid(std::string(type) + ".size is not sizeof(" + std::string(type) + ")");
  }
  for (std::size_t i = 0; i < count; ++i) {
    T one = {};
    const auto* at = reinterpret_cast<const T*>(reinterpret_cast<const char*>(in) + i * step);
    if (Status status = read_struct(type, at, one); !status.ok()) return status;
    if (Status status = read_one(one); !status.ok()) return status;
  }
  return {};
}

// The first that is not ok.
Status first_of(std::initializer_list<Status> all) {
  for (const Status& status : all) {
    if (!status.ok()) return status;
  }
  return {};
}

LogFn log_function(dh_log_fn log, void* context) {
  if (log == nullptr) return {};
  return [log, context](LogLevel level, std::string_view line) {
    try {
      log(context, static_cast<std::int32_t>(level), line.data(), line.size());
    } catch (...) {  // the embedder's, which is not ours to report
    }
  };
}

Status read_ids(std::string_view name, const std::uint32_t* in, std::size_t count,
                std::vector<std::uint32_t>& out) {
  if (count > 0 && in == nullptr) return invalid(std::string(name) + " is null with a count");
  out.assign(in, in + count);
  return {};
}

Status read_calls(const dh_chat_turn& turn, std::vector<ToolCall>& out) {
  return read_each(
      "dh_chat_turn.tool_calls", "dh_tool_call", turn.tool_calls, turn.tool_call_count,
      [&out](const dh_tool_call& call) {
        ToolCall& made = out.emplace_back();
        return first_of({read_string("dh_tool_call.name", call.name, made.name),
                         read_string("dh_tool_call.arguments", call.arguments, made.arguments),
                         read_string("dh_tool_call.id", call.id, made.id)});
      });
}

Status read_messages(const dh_submit_request& in, std::vector<ChatTurn>& out) {
  return read_each(
      "dh_submit_request.messages", "dh_chat_turn", in.messages, in.message_count,
      [&out](const dh_chat_turn& turn) {
        ChatTurn& made = out.emplace_back();
        return first_of({read_string("dh_chat_turn.role", turn.role, made.role),
                         read_string("dh_chat_turn.content", turn.content, made.content),
                         read_string("dh_chat_turn.reasoning", turn.reasoning, made.reasoning),
                         read_calls(turn, made.calls),
                         read_string("dh_chat_turn.tool_call_id", turn.tool_call_id, made.call_id),
                         read_string("dh_chat_turn.name", turn.name, made.name)});
      });
}

}  // namespace

Status check_size(std::string_view name, std::size_t size) {
  if (size >= sizeof(std::size_t) && size <= kStructBytesMax) return {};
  return invalid(std::string(name) + ".size is " + std::to_string(size) + ": set it to sizeof(" +
                 std::string(name) + ")");
}

Status check_rest(std::string_view name, const void* from, std::size_t known, std::size_t size) {
  const char* bytes = static_cast<const char*>(from);
  for (std::size_t i = known; i < size; ++i) {
    if (bytes[i] == 0) continue;
    return Status(Code::unsupported, std::string(name) +
                                         " sets fields of a newer version; this library is " +
                                         std::string(dh_version()) + " and knows the first " +
                                         std::to_string(known) + " bytes");
  }
  return {};
}

Status read_string(std::string_view name, dh_string in, std::string& out) {
  if (in.length == 0) {
    out.clear();
    return {};
  }
  if (in.data == nullptr) return invalid(std::string(name) + " is null with a length");
  if (in.length > out.max_size()) return invalid(std::string(name) + " has an impossible length");
  out.assign(in.data, in.length);
  return {};
}

Status read_strings(std::string_view name, const dh_string* in, std::size_t count,
                    std::vector<std::string>& out) {
  if (count > 0 && in == nullptr) return invalid(std::string(name) + " is null with a count");
  for (std::size_t i = 0; i < count; ++i) {
    if (Status status = read_string(name, in[i], out.emplace_back()); !status.ok()) return status;
  }
  return {};
}

dh_host_options default_host_options() {
  const HostOptions from;
  dh_host_options made = {};
  made.size = sizeof made;
  made.memory_bytes = from.memory_bytes;
  made.idle_unload_s = from.idle_unload_s;
  made.load_cooldown_s = from.load_cooldown_s;
  made.switch_after_s = from.switch_after_s;
  made.threads = from.threads;
  return made;
}

dh_cache_config default_cache_config() {
  const CacheConfig from;
  dh_cache_config made = {};
  made.size = sizeof made;
  made.ram_bytes = from.ram_bytes;
  made.ram_floor_bytes = from.ram_floor_bytes;
  made.disk_bytes = from.disk_bytes;
  made.disk_free_bytes = from.disk_free_bytes;
  made.disk_queue_bytes = from.disk_queue_bytes;
  made.snapshot_tokens = from.snapshot_tokens;
  made.enabled = from.enabled;
  made.trace = from.trace;
  return made;
}

dh_model_spec default_model_spec() {
  const ModelSpec from;
  dh_model_spec made = {};
  made.size = sizeof made;
  made.weight = from.weight;
  made.context = from.context;
  made.sequences = from.sequences;
  made.queue = from.queue;
  made.compute_fp32 = from.compute_fp32;
  made.pinned = from.pinned;
  made.draft_window = from.draft_window;
  made.draft_sink = from.draft_sink;
  return made;
}

dh_unload_options default_unload_options() {
  const UnloadOptions from;
  dh_unload_options made = {};
  made.size = sizeof made;
  made.deadline_s = from.deadline_s;
  made.keep_cache = from.keep_cache;
  return made;
}

dh_submit_request default_submit_request() {
  const SubmitRequest from;
  dh_submit_request made = {};
  made.size = sizeof made;
  made.timeout_s = from.timeout_s;
  made.event_queue = from.event_queue;
  made.max_tokens = from.max_tokens;
  made.width = from.width;
  made.ignore_eos = from.ignore_eos;
  made.use_cache = from.use_cache;
  made.priority = from.priority;
  made.n = from.n;
  return made;
}

dh_sampling default_sampling() {
  const SamplingOptions from;
  dh_sampling made = {};
  made.size = sizeof made;
  made.temperature = from.temperature;
  made.top_p = from.top_p;
  made.min_p = from.min_p;
  made.typical_p = from.typical_p;
  made.xtc_threshold = from.xtc_threshold;
  made.repetition_penalty = from.repetition_penalty;
  made.dry_base = from.dry_base;
  made.dry_allowed_length = from.dry_allowed_length;
  return made;
}

Status read(const dh_host_options* in, HostOptions& out) {
  if (in == nullptr) return {};
  dh_host_options from = default_host_options();
  if (Status status = read_struct("dh_host_options", in, from); !status.ok()) return status;
  out.threads = from.threads;
  out.idle_unload_s = from.idle_unload_s;
  out.load_cooldown_s = from.load_cooldown_s;
  out.switch_after_s = from.switch_after_s;
  out.log = log_function(from.log, from.log_context);
  return first_of({check_reserved("dh_host_options", from.reserved),
                   narrow("dh_host_options.memory_bytes", from.memory_bytes, out.memory_bytes),
                   read_strings("dh_host_options.hook_plugins", from.hook_plugins,
                                from.hook_plugin_count, out.hook_plugins)});
}

Status read(const dh_cache_config* in, CacheConfig& out) {
  if (in == nullptr) return {};
  dh_cache_config from = default_cache_config();
  if (Status status = read_struct("dh_cache_config", in, from); !status.ok()) return status;
  out.enabled = from.enabled != 0;
  out.trace = from.trace != 0;
  out.disk_bytes = from.disk_bytes;
  out.disk_free_bytes = from.disk_free_bytes;
  out.snapshot_tokens = from.snapshot_tokens;
  return first_of(
      {check_reserved("dh_cache_config", from.reserved),
       narrow("dh_cache_config.ram_bytes", from.ram_bytes, out.ram_bytes),
       narrow("dh_cache_config.ram_floor_bytes", from.ram_floor_bytes, out.ram_floor_bytes),
       narrow("dh_cache_config.disk_queue_bytes", from.disk_queue_bytes, out.disk_queue_bytes),
       read_string("dh_cache_config.disk_directory", from.disk_directory, out.disk_directory)});
}

Status read(const dh_model_spec* in, ModelSpec& out) {
  dh_model_spec from = default_model_spec();
  if (Status status = read_struct("dh_model_spec", in, from); !status.ok()) return status;
  out.weight = from.weight;
  out.context = from.context;
  out.sequences = from.sequences;
  out.queue = from.queue;
  out.compute_fp32 = from.compute_fp32 != 0;
  out.pinned = from.pinned != 0;
  out.draft_window = from.draft_window;
  out.draft_sink = from.draft_sink;
  return first_of(
      {check_reserved("dh_model_spec", from.reserved),
       read_string("dh_model_spec.name", from.name, out.name),
       read_string("dh_model_spec.target", from.target, out.target),
       read_string("dh_model_spec.draft", from.draft, out.draft),
       read_string("dh_model_spec.label", from.label, out.label),
       read_string("dh_model_spec.isa", from.isa, out.isa),
       read_string("dh_model_spec.packed_directory", from.packed_directory, out.packed_directory),
       read(from.cache, out.cache)});
}

Status read(const dh_unload_options* in, UnloadOptions& out) {
  if (in == nullptr) return {};
  dh_unload_options from = default_unload_options();
  if (Status status = read_struct("dh_unload_options", in, from); !status.ok()) return status;
  out.deadline_s = from.deadline_s;
  out.keep_cache = from.keep_cache != 0;
  return check_reserved("dh_unload_options", from.reserved);
}

Status read(const dh_submit_request* in, SubmitRequest& out) {
  dh_submit_request from = default_submit_request();
  if (Status status = read_struct("dh_submit_request", in, from); !status.ok()) return status;
  out.timeout_s = from.timeout_s;
  out.max_tokens = from.max_tokens;
  out.width = from.width;
  out.ignore_eos = from.ignore_eos != 0;
  out.use_cache = from.use_cache != 0;
  out.priority = from.priority;
  out.n = from.n;
  if (from.grammar_form < DH_GRAMMAR_NONE || from.grammar_form > DH_GRAMMAR_LARK) {
    return invalid("dh_submit_request.grammar_form is " + std::to_string(from.grammar_form) +
                   ", which is none of DH_GRAMMAR_…");
  }
  out.grammar.form = static_cast<GrammarForm>(from.grammar_form);
  if (from.reply_format < DH_REPLY_AUTO || from.reply_format > DH_REPLY_LFM2) {
    return invalid("dh_submit_request.reply_format is " + std::to_string(from.reply_format) +
                   ", which is none of DH_REPLY_…");
  }
  if (from.reply_format != DH_REPLY_AUTO) {
    out.reply.format = static_cast<ReplyFormat>(from.reply_format - DH_REPLY_PLAIN);
  }
  if (from.has_thinking_budget != 0) out.reply.thinking_budget = from.thinking_budget;
  out.logprobs = from.logprobs != 0;
  out.top_logprobs = from.top_logprobs;
  out.prompt_logprobs = from.prompt_logprobs != 0;
  return first_of(
      {check_reserved("dh_submit_request", from.reserved),
       narrow("dh_submit_request.event_queue", from.event_queue, out.event_queue),
       read_string("dh_submit_request.model", from.model, out.model),
       read_ids("dh_submit_request.prompt_ids", from.prompt_ids, from.prompt_id_count,
                out.prompt_ids),
       read_messages(from, out.messages),
       read_string("dh_submit_request.prompt", from.prompt, out.prompt),
       read_strings("dh_submit_request.stop", from.stop, from.stop_count, out.stop),
       read_ids("dh_submit_request.stop_ids", from.stop_ids, from.stop_id_count, out.stop_ids),
       read(from.sampling, out.sampling),
       read_string("dh_submit_request.grammar", from.grammar, out.grammar.text),
       read_string("dh_submit_request.template_options", from.template_options, out.chat.variables),
       read_string("dh_submit_request.tools", from.tools, out.chat.tools),
       read_string("dh_submit_request.documents", from.documents, out.chat.documents),
       read_string("dh_submit_request.salt", from.salt, out.salt)});
}

Status read(const dh_sampling* in, SamplingOptions& out) {
  if (in == nullptr) return {};
  dh_sampling from = default_sampling();
  if (Status status = read_struct("dh_sampling", in, from); !status.ok()) return status;
  if (from.has_seed != 0) out.seed = from.seed;
  out.temperature = from.temperature;
  out.top_k = from.top_k;
  out.top_p = from.top_p;
  out.min_p = from.min_p;
  out.typical_p = from.typical_p;
  out.xtc_probability = from.xtc_probability;
  out.xtc_threshold = from.xtc_threshold;
  out.repetition_penalty = from.repetition_penalty;
  out.presence_penalty = from.presence_penalty;
  out.frequency_penalty = from.frequency_penalty;
  out.dry_multiplier = from.dry_multiplier;
  out.dry_base = from.dry_base;
  out.dry_allowed_length = from.dry_allowed_length;
  out.dry_range = from.dry_range;
  out.min_tokens = from.min_tokens;
  if (from.logit_bias_count > 0 && from.logit_bias == nullptr) {
    return invalid("dh_sampling.logit_bias is null with a count");
  }
  for (std::size_t i = 0; i < from.logit_bias_count; ++i) {
    out.logit_bias.push_back({from.logit_bias[i].id, from.logit_bias[i].bias});
  }
  return first_of(
      {read_ids("dh_sampling.dry_breaker_ids", from.dry_breaker_ids, from.dry_breaker_id_count,
                out.dry_breaker_ids),
       read_ids("dh_sampling.ban_ids", from.ban_ids, from.ban_id_count, out.ban_ids),
       read_ids("dh_sampling.allow_ids", from.allow_ids, from.allow_id_count, out.allow_ids)});
}

dh_cache_report view(const CacheReport& from) {
  return {.size = sizeof(dh_cache_report),
          .tier = as_string(from.tier),
          .reason = as_string(from.reason),
          .matched_tokens = from.matched_tokens,
          .stored_pages = from.stored_pages};
}

}  // namespace drafthouse::capi
