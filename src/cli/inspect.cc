#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/output.h"
#include "cli/verb.h"
#include "engine/pairing.h"
#include "formats/checkpoint.h"
#include "formats/printable.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace drafthouse::cli {
namespace {

using json = nlohmann::ordered_json;

struct InspectOptions {
  std::string model;
  std::string draft;
  bool tensors = false;
  bool json = false;
};

constexpr char kExamples[] = R"(Examples:
  drafthouse inspect SmolLM2-135M-Instruct.Q4_1.gguf
  drafthouse inspect ./Qwen3-4B --draft ./Qwen3-4B-DFlash
  drafthouse inspect ./Qwen3-4B-DFlash --json

Reads headers and the tokenizer, no weights. Exit code 1 when the model, or the pair, cannot be used;
what could be read is printed all the same.)";

// What is known of one model, and the first reason why it cannot be used.
struct Findings {
  json object;
  Status error;

  void note(const Status& status) {
    if (error.ok()) error = status;
  }
};

// What a tensor is in memory. Every kind keeps the numbers of the file (packs_exactly() names the
// exception); vectors become fp32, which holds every bf16 and f16 number.
std::string_view held_as(const TensorInfo& tensor) {
  if (!is_weight(tensor.dtype)) return "unused";
  return name_of(tensor.shape.size() >= 2 ? packed_kind(tensor.row_format()) : Dtype::f32);
}

json describe_tensors(const Checkpoint& checkpoint) {
  json list = json::array();
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    json row = {{"name", tensor.name},
                {"dtype", name_of(tensor.row_format())},
                {"shape", tensor.shape},
                {"bytes", tensor.bytes},
                {"file", tensor.file},
                {"packed", held_as(tensor)},
                {"exact", is_weight(tensor.dtype) && packs_exactly(tensor.row_format())}};
    if (tensor.file_name != tensor.name) row["file_name"] = tensor.file_name;
    list.push_back(std::move(row));
  }
  return list;
}

json describe_rope(const RopeConfig& rope) {
  constexpr std::string_view kNames[] = {"none", "linear", "llama3", "yarn", "proportional"};
  json object = {{"theta", rope.theta},
                 {"scaling", kNames[static_cast<std::size_t>(rope.scaling)]}};
  if (rope.scaling != RopeScaling::none) object["factor"] = rope.factor;
  if (rope.rotary_dim != 0) object["rotary_dim"] = rope.rotary_dim;
  return object;
}

// What targets and drafts have alike.
template <class Config>
void add_sizes(json& object, const Config& c) {
  object.update({{"hidden_size", c.hidden_size},
                 {"layers", c.layers},
                 {"heads", c.heads},
                 {"kv_heads", c.kv_heads},
                 {"head_dim", c.head_dim},
                 {"intermediate_size", c.intermediate_size},
                 {"vocab_size", c.vocab_size},
                 {"max_positions", c.max_positions},
                 {"rms_eps", c.rms_eps}});
}

json describe_sizes(const ModelConfig& c) {
  json object = {{"family", c.family}};
  add_sizes(object, c);
  object["tied_head"] = c.tied_head;
  object["rope"] = describe_rope(c.rope);
  object["eos_ids"] = c.eos_ids;
  return object;
}

// One entry for each layer, where layers differ.
json describe_layers(const ModelConfig& c) {
  json layers = json::array();
  for (const LayerConfig& layer : c.layer_table) {
    if (!attends(layer.kind)) {
      const bool delta_rule = layer.kind == LayerKind::delta_rule;
      json row = {{"recurrent", delta_rule ? "delta rule" : "convolution"},
                  {"intermediate_size", layer.intermediate_size},
                  {"experts", layer.experts ? c.experts.count : 0}};
      layers.push_back(std::move(row));
      continue;
    }
    const bool sliding = layer.kind == LayerKind::sliding_attention;
    json row = {{"attention", sliding ? "sliding" : "full"},
                {"heads", layer.heads},
                {"kv_heads", layer.kv_heads},
                {"head_dim", layer.head_dim},
                {"intermediate_size", layer.intermediate_size},
                {"experts", layer.experts ? c.experts.count : 0}};
    if (layer.kv_source) row["kv_of_layer"] = *layer.kv_source;
    layers.push_back(std::move(row));
  }
  return layers;
}

json describe_config(const ModelConfig& c) {
  json object = describe_sizes(c);
  if (c.layer_table.empty()) return object;
  object["layer_table"] = describe_layers(c);
  if (const RecurrentConfig& r = c.recurrent; r.kernel != 0) {
    object["recurrent"] = {{"kernel", r.kernel},
                           {"key_heads", r.key_heads},
                           {"value_heads", r.value_heads},
                           {"key_dim", r.key_dim},
                           {"value_dim", r.value_dim}};
  }
  if (c.sliding_window != 0) object["sliding_window"] = c.sliding_window;
  if (c.sliding_rope) object["sliding_rope"] = describe_rope(*c.sliding_rope);
  if (c.experts.count != 0) {
    object["experts"] = {{"count", c.experts.count},
                         {"per_token", c.experts.per_row},
                         {"intermediate_size", c.experts.intermediate_size}};
  }
  return object;
}

json describe_config(const DraftConfig& c) {
  json layer_types = json::array();
  for (const LayerAttention type : c.layer_types) {
    layer_types.push_back(type == LayerAttention::full ? "full" : "sliding");
  }
  json object = {{"architecture", c.architecture}};
  add_sizes(object, c);
  object["rope"] = describe_rope(c.rope);
  object["block_size"] = c.block_size;
  object["mask_token_id"] = c.mask_id;
  object["target_layer_ids"] = c.target_layer_ids;
  object["layer_types"] = layer_types;
  object["sliding_window"] = c.sliding_window;
  if (c.draft_vocab_size != 0) object["draft_vocab_size"] = c.draft_vocab_size;
  if (c.own_embedding) object["own_embedding"] = true;
  if (c.own_head) object["own_head"] = true;
  if (c.is_causal) object["is_causal"] = *c.is_causal;
  if (c.input_embedding_scale) object["input_embedding_scale"] = *c.input_embedding_scale;
  if (c.output_multiplier != 1.0) object["output_multiplier"] = c.output_multiplier;
  if (c.final_logit_softcapping != 0.0) {
    object["final_logit_softcapping"] = c.final_logit_softcapping;
  }
  if (c.is_dflash2()) {
    object["dflash2"] = {{"conv_kernel_size", c.dflash2.conv_kernel},
                         {"conv_group_size", c.dflash2.conv_group},
                         {"selector_rank", c.dflash2.selector_rank},
                         {"selector_top_k", c.dflash2.selector_top_k}};
  }
  return object;
}

// Null when the checkpoint ships no tokenizer.
json describe_tokenizer(const Checkpoint& checkpoint, Findings& findings) {
  const TokenizerSource& source = checkpoint.tokenizer();
  if (!source.has_tokenizer()) return nullptr;
  const bool gguf = source.gguf.has_value();
  json object = {{"kind", gguf ? source.gguf->model + "/" + source.gguf->pre : "tokenizer.json"},
                 {"chat_template", false}};
  if (source.chat_template.has_value()) {
    const Result<std::shared_ptr<const ChatTemplate>> chat = ChatTemplate::create(source);
    object["chat_template"] = chat.ok();
    if (!chat.ok()) {
      object["chat_template_error"] = chat.status().message();
      // Nothing is asked of a draft in words.
      if (!checkpoint.is_draft()) findings.note(chat.status());
    }
  }
  const Result<std::shared_ptr<const Tokenizer>> tokenizer = Tokenizer::create(source);
  if (!tokenizer.ok()) {
    findings.note(tokenizer.status());
    return object;
  }
  object["tokens"] = tokenizer.value()->size();
  return object;
}

Findings examine(const Checkpoint& checkpoint) {
  Findings findings;
  findings.object = {{"path", checkpoint.path()},
                     {"format", checkpoint.format()},
                     {"kind", checkpoint.is_draft() ? "draft" : "target"},
                     {"files", checkpoint.files()},
                     {"bytes", checkpoint.bytes()},
                     {"tensors", describe_tensors(checkpoint)},
                     {"config", nullptr}};
  if (checkpoint.is_draft()) {
    const Result<DraftConfig> config = checkpoint.draft_config();
    if (config.ok()) findings.object["config"] = describe_config(config.value());
    if (!config.ok()) findings.note(config.status());
  } else {
    const Result<ModelConfig> config = checkpoint.model_config();
    if (config.ok()) findings.object["config"] = describe_config(config.value());
    findings.note(check_target(checkpoint));
  }
  findings.object["tokenizer"] = describe_tokenizer(checkpoint, findings);
  return findings;
}

// Adds the verdict on a pair.
void judge_pair(const Checkpoint& target, const std::string& draft_name, Findings& findings) {
  json& verdict = findings.object["pairing"] = {{"fits", false}, {"draft", draft_name}};
  const auto refuse = [&](const Status& why) {
    verdict["reason"] = why.message();
    findings.note(why);
  };
  const Result<Checkpoint> draft = Checkpoint::open(draft_name);
  if (!draft.ok()) return refuse(draft.status());
  verdict["draft"] = draft.value().path();
  const PairingVerdict found = check_pairing(target, draft.value());
  if (found.config) verdict["draft_config"] = describe_config(*found.config);
  verdict["notes"] = found.notes;
  if (!found.status.ok()) return refuse(found.status);
  verdict["fits"] = true;
}

std::string text_of(const json& value);

// "theta 10000, scaling none"; "0, 1, 2".
std::string words_of(const json& value) {
  std::string text;
  for (const auto& [name, part] : value.items()) {
    if (!text.empty()) text += ", ";
    if (value.is_object()) text += printable(name) + " ";
    text += part.is_structured() ? "(" + text_of(part) + ")" : text_of(part);
  }
  return text.empty() ? "none" : text;
}

// Of a value for a person to read.
std::string text_of(const json& value) {
  if (value.is_structured()) return words_of(value);
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  // As many digits as a GGUF's fp32 has.
  if (value.is_number_float()) return fmt::format("{:.7g}", value.get<double>());
  return value.is_string() ? printable(value.get<std::string>())
                           : value.dump(-1, ' ', true, json::error_handler_t::replace);
}

std::string fields(const json& object) {
  std::string text;
  for (const auto& [name, value] : object.items()) {
    text += fmt::format("  {:<17} {}\n", name, text_of(value));
  }
  return text;
}

std::string dtype_table(const Checkpoint& checkpoint) {
  struct Sum {
    bool exact = true;
    std::size_t count = 0;
    std::uint64_t bytes = 0;
  };
  std::map<std::pair<std::string, std::string_view>, Sum> sums;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    Sum& sum = sums[{name_of(tensor.row_format()), held_as(tensor)}];
    sum.exact = packs_exactly(tensor.row_format());
    ++sum.count;
    sum.bytes += tensor.bytes;
  }
  std::string text;
  for (const auto& [kinds, sum] : sums) {
    text += fmt::format("  {:<6}{:>5} tensors {:>12.1f} MB  in memory {}{}\n", kinds.first,
                        sum.count, static_cast<double>(sum.bytes) / 1e6, kinds.second,
                        kinds.second == "unused" ? ""
                        : sum.exact              ? " (exact)"
                                                 : " (number x scale, rounded to fp32)");
  }
  return text;
}

std::string pairing_text(const json& pairing) {
  std::string text = fmt::format("pairing with {}\n", text_of(pairing["draft"]));
  text += pairing["fits"].get<bool>()
              ? "  the draft fits this target\n"
              : fmt::format("  the draft cannot be used with this target: {}\n",
                            text_of(pairing["reason"]));
  if (pairing.contains("notes")) {
    for (const json& note : pairing["notes"]) text += fmt::format("  note: {}\n", text_of(note));
  }
  if (pairing.contains("draft_config")) text += "draft\n" + fields(pairing["draft_config"]);
  return text;
}

std::string report(const Checkpoint& checkpoint, const json& object, bool with_tensors) {
  std::string text = fmt::format("{}: {}, {}\n", printable(checkpoint.path()),
                                 text_of(object["kind"]), checkpoint.format());
  text += with_tensors ? "tensors\n" : "tensors (each with --tensors)\n";
  text += dtype_table(checkpoint);
  if (object["config"].is_object()) text += "config\n" + fields(object["config"]);
  text += "tokenizer\n";
  text += object["tokenizer"].is_object() ? fields(object["tokenizer"]) : "  none\n";
  if (object.contains("pairing")) text += pairing_text(object["pairing"]);
  if (!with_tensors) return text;
  text += "each tensor\n";
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    text += fmt::format("  {:<5} {:>14} {:>12}  {}\n", name_of(tensor.row_format()),
                        json(tensor.shape).dump(), tensor.bytes, printable(tensor.name));
  }
  return text;
}

int run_inspect(const InspectOptions& options) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(options.model);
  if (!checkpoint.ok()) return fail(checkpoint.status(), options.json);
  Findings findings = examine(checkpoint.value());
  if (!options.draft.empty()) judge_pair(checkpoint.value(), options.draft, findings);
  const bool usable = findings.error.ok();
  if (options.json) {
    if (!usable) {
      findings.object["error"] = {{"code", name_of(findings.error.code())},
                                  {"message", findings.error.message()}};
      say(findings.error.message());
    }
    return print_json(findings.object, usable ? kOk : kFailed);
  }
  const ExitCode written = write_out(report(checkpoint.value(), findings.object, options.tensors));
  if (!usable) return fail(findings.error, false);
  return written;
}

}  // namespace

void add_inspect(CLI::App& app, RunFn& run) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* verb = app.add_subcommand("inspect", "What is in a model's files, and does a pair fit");
  verb->add_option("model", options->model,
                   "A folder, a .gguf file, or a hub id in the local cache")
      ->type_name("MODEL")
      ->required();
  verb->add_option("--draft", options->draft, "Say whether this DFlash draft fits the model")
      ->type_name("DRAFT");
  verb->add_flag("--tensors", options->tensors, "List every tensor (--json always does)");
  verb->add_flag("--json", options->json, "Print one JSON object");
  verb->footer(kExamples);
  verb->callback([&run, options] { run = [options] { return run_inspect(*options); }; });
}

}  // namespace drafthouse::cli
