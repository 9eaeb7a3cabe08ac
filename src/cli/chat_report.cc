#include "cli/chat_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/figures.h"
#include "cli/output.h"
#include "cli/reply_json.h"

namespace drafthouse::cli {
namespace {

using json = nlohmann::ordered_json;

std::string milliseconds(double seconds) {
  if (seconds >= 1) return fmt::format("{:.1f} s", seconds);
  return fmt::format("{:.{}f} ms", seconds * 1e3, seconds < 0.01 ? 1 : 0);
}

std::string row(std::string_view name, const std::string& value) {
  return fmt::format("{:<11}{}\n", name, value);
}

}  // namespace

std::string figures_line(const ChatAnswer& answer) {
  const GenerateResult& result = answer.result;
  if (result.ids.empty()) return "interrupted before the first token";
  std::string line = fmt::format("{} of {} prompt tokens cached", answer.cache.matched_tokens,
                                 result.prompt_tokens);
  if (answer.cache.matched_tokens > 0) line += fmt::format(" ({})", answer.cache.tier);
  if (result.mode == "dflash" && !result.accepted_per_turn.empty()) {
    line += fmt::format(", {:.2f} tokens per turn", acceptance(result));
  }
  line += fmt::format(", {} tokens", result.ids.size());
  if (tokens_per_second(result) > 0)
    line += fmt::format(" at {:.0f} tok/s", tokens_per_second(result));
  line += ", first token after " + milliseconds(answer.first_token_s);
  if (result.finish_reason == "cancelled") line += " (interrupted)";
  if (result.finish_reason == "length") line += " (length)";
  return line;
}

int print_answer_json(std::uint32_t number, const ChatAnswer& answer) {
  const GenerateResult& result = answer.result;
  const Timings& timings = result.timings;
  json object = {
      {"answer", number},
      {"text", result.text},
      {"ids", result.ids},
      {"finish_reason", result.finish_reason},
      {"prompt_tokens", result.prompt_tokens},
      {"cache",
       {{"matched_tokens", answer.cache.matched_tokens},
        {"tier", answer.cache.tier},
        {"reason", answer.cache.reason},
        {"stored_pages", answer.cache.stored_pages}}},
      {"acceptance", acceptance(result)},
      {"tok_s", tokens_per_second(result)},
      {"first_token_s", answer.first_token_s},
      {"accepted_per_turn", result.accepted_per_turn},
      {"width_per_turn", result.width_per_turn},
      {"mode", result.mode},
      {"timings",
       {{"queue_s", timings.queue_s},
        {"restore_s", timings.restore_s},
        {"prefill_s", timings.prefill_s},
        {"decode_s", timings.decode_s},
        {"draft_s", timings.draft_s},
        {"verify_s", timings.verify_s}}},
  };
  if (result.mode == "plain") object["reason"] = result.reason;
  add_reply(object, result);
  return print_json(object, kOk);
}

std::string stats_text(const HostStats& host, const ModelStats& model, const ChatAnswer* last) {
  const std::uint64_t hits = model.ram_hit_tokens + model.disk_hit_tokens;
  std::string text =
      row("requests", fmt::format("{}, {} finished, {} interrupted, {} failed", model.requests,
                                  model.finished, model.cancelled, model.failed));
  text += row("prompts",
              fmt::format("{} tokens, {} of them cached (ram {}, disk {})", model.prompt_tokens,
                          hits, model.ram_hit_tokens, model.disk_hit_tokens));
  std::string answers = fmt::format("{} tokens", model.generated_tokens);
  if (model.turns > 0) {
    answers += fmt::format(", {:.2f} per turn", static_cast<double>(model.turn_tokens) /
                                                    static_cast<double>(model.turns));
  }
  text += row("answers", answers);
  text += row("cache", fmt::format("{} pages of 64 tokens, {}", model.cache_pages,
                                   human_bytes(model.cache_bytes)));
  text += row("memory", fmt::format("{} of {}", human_bytes(host.memory_used),
                                    human_bytes(host.memory_limit)));
  if (last != nullptr && !last->cache.reason.empty()) {
    text += row("last", fmt::format("{} of {} prompt tokens cached: {}", last->cache.matched_tokens,
                                    last->result.prompt_tokens, last->cache.reason));
  }
  return text;
}

int print_stats_json(const HostStats& host, const ModelStats& model) {
  const json object = {
      {"stats",
       {{"requests", model.requests},
        {"finished", model.finished},
        {"cancelled", model.cancelled},
        {"failed", model.failed},
        {"prompt_tokens", model.prompt_tokens},
        {"hit_tokens", {{"ram", model.ram_hit_tokens}, {"disk", model.disk_hit_tokens}}},
        {"tokens", model.generated_tokens},
        {"turns", model.turns},
        {"turn_tokens", model.turn_tokens},
        {"cache_pages", model.cache_pages},
        {"cache_bytes", model.cache_bytes},
        {"memory", {{"used", host.memory_used}, {"limit", host.memory_limit}}}}}};
  return print_json(object, kOk);
}

}  // namespace drafthouse::cli
