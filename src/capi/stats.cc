#include <algorithm>
#include <nlohmann/json.hpp>

#include "capi/host_calls.h"
#include "capi/structs.h"

using namespace drafthouse;
using namespace drafthouse::capi;

namespace {

using Json = nlohmann::ordered_json;

// Names come from callers and files, and may be no UTF-8.
dh_string written(const Json& json) {
  return owned_copy(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Json json_of(const EngineInfo& info) {
  return {{"target", info.target},
          {"draft", info.draft},
          {"family", info.family},
          {"reply_format", name_of(info.reply_format)},
          {"weights", info.weights},
          {"isa", info.isa},
          {"threads", info.threads},
          {"context", info.context},
          {"vocab_size", info.vocab_size},
          {"block_size", info.block_size},
          {"weight_bytes", info.weight_bytes},
          {"load_s", info.load_s}};
}

Json json_of(const ModelStats& model) {
  Json json = {{"state", name_of(model.state)},
               {"why", model.why},
               {"pinned", model.pinned},
               {"queued", model.queued},
               {"running", model.running},
               {"requests", model.requests},
               {"finished", model.finished},
               {"cancelled", model.cancelled},
               {"failed", model.failed},
               {"prompt_tokens", model.prompt_tokens},
               {"generated_tokens", model.generated_tokens},
               {"turns", model.turns},
               {"turn_tokens", model.turn_tokens},
               {"preempted", model.preempted},
               {"checkpoints_skipped", model.checkpoints_skipped},
               {"loads", model.loads},
               {"unloads", model.unloads},
               {"cache_lookups", model.cache_lookups},
               {"cache_hits", model.cache_hits},
               {"ram_hit_tokens", model.ram_hit_tokens},
               {"disk_hit_tokens", model.disk_hit_tokens},
               {"cache_pages", model.cache_pages},
               {"cache_bytes", model.cache_bytes},
               {"evicted_own", model.evicted_own},
               {"evicted_pressure", model.evicted_pressure},
               {"manager_rebuilds", model.manager_rebuilds},
               {"memory_bytes", model.memory_bytes},
               {"shared_weight_bytes", model.shared_weight_bytes}};
  if (model.state == ModelState::ready) json["info"] = json_of(model.info);
  return json;
}

dh_model_stats view(const ModelStats& from) {
  return {.size = sizeof(dh_model_stats),
          .state = static_cast<std::int32_t>(from.state),
          .queued = from.queued,
          .running = from.running,
          .reserved = 0,
          .requests = from.requests,
          .finished = from.finished,
          .cancelled = from.cancelled,
          .failed = from.failed,
          .prompt_tokens = from.prompt_tokens,
          .generated_tokens = from.generated_tokens,
          .turns = from.turns,
          .turn_tokens = from.turn_tokens,
          .ram_hit_tokens = from.ram_hit_tokens,
          .disk_hit_tokens = from.disk_hit_tokens,
          .cache_bytes = from.cache_bytes,
          .memory_bytes = from.memory_bytes,
          .manager_rebuilds = from.manager_rebuilds};
}

}  // namespace

extern "C" {

dh_code dh_stats(dh_host* handle, dh_string* json, dh_status* status) {
  return in_host(handle, status, [&](Host& host) -> Status {
    if (json == nullptr) return Status(Code::invalid_argument, "dh_stats: json is null");
    const HostStats stats = host.stats();
    Json models = Json::object();
    for (const ModelStats& model : stats.models) models[model.name] = json_of(model);
    *json = written({{"memory",
                      {{"limit", stats.memory_limit},
                       {"used", stats.memory_used},
                       {"peak", stats.memory_peak}}},
                     {"models", std::move(models)}});
    return {};
  });
}

dh_code dh_ledger(dh_host* handle, dh_string* json, dh_status* status) {
  return in_host(handle, status, [&](Host& host) -> Status {
    if (json == nullptr) return Status(Code::invalid_argument, "dh_ledger: json is null");
    Json rows = Json::array();
    for (const LedgerRow& row : host.ledger()) {
      rows.push_back({{"model", row.model}, {"tag", row.tag}, {"bytes", row.bytes}});
    }
    *json = written(rows);
    return {};
  });
}

dh_code dh_model_stats_get(dh_host* handle, dh_string name, dh_model_stats* stats,
                           dh_status* status) {
  return in_host(handle, status, [&](Host& host) -> Status {
    std::string model;
    if (Status read_in = read_string("the model's name", name, model); !read_in.ok())
      return read_in;
    const HostStats all = host.stats();
    const auto found = std::find_if(all.models.begin(), all.models.end(),
                                    [&](const ModelStats& one) { return one.name == model; });
    if (found == all.models.end()) {
      return Status(Code::not_found, "there is no model \"" + model + "\": dh_stats lists them");
    }
    return write_struct("dh_model_stats", view(*found), stats);
  });
}
}
