#include <fmt/format.h>

#include <optional>
#include <utility>

#include "formats/gguf_token_id.h"
#include "formats/limits.h"
#include "formats/tokenizer_files.h"

namespace drafthouse {
namespace {

Status read_ids(const std::string& path, const GgufMetadata& metadata, GgufVocabulary& into) {
  struct Wanted {
    std::string_view key;
    std::optional<std::uint32_t>& id;
  };
  const Wanted all[] = {{"tokenizer.ggml.bos_token_id", into.bos_id},
                        {"tokenizer.ggml.eos_token_id", into.eos_id},
                        {"tokenizer.ggml.unknown_token_id", into.unk_id},
                        {"tokenizer.ggml.padding_token_id", into.pad_id}};
  for (const Wanted& wanted : all) {
    auto id = gguf_token_id(path, metadata, wanted.key, into.tokens.size());
    if (!id.ok()) return id.status();
    wanted.id = id.value();
  }
  return Status();
}

Status read_types(const std::string& path, const GgufMetadata& metadata, GgufVocabulary& into) {
  constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  if (!metadata.has(kKey)) return Status();
  const auto* types = metadata.wholes(kKey);
  if (types == nullptr || types->size() != into.tokens.size()) {
    return Status(Code::corrupt, fmt::format("{}: {} does not have one entry for each of the {} "
                                             "tokens",
                                             path, kKey, into.tokens.size()));
  }
  for (const std::int64_t type : *types) {
    if (type < 0 || type > 255) {
      return Status(Code::corrupt, fmt::format("{}: {} holds {}", path, kKey, type));
    }
    into.token_types.push_back(static_cast<std::int32_t>(type));
  }
  return Status();
}

}  // namespace

Result<TokenizerSource> gguf_text(const std::string& path, const GgufMetadata& metadata) {
  TokenizerSource source;
  source.origin = path;
  source.chat_template = metadata.text("tokenizer.chat_template");
  source.template_origin = path + " (tokenizer.chat_template)";
  const auto* tokens = metadata.texts("tokenizer.ggml.tokens");
  if (tokens == nullptr) return source;
  if (tokens->empty() || tokens->size() > limits::kVocabMax) {
    return Status(Code::corrupt,
                  fmt::format("{}: tokenizer.ggml.tokens has {} tokens", path, tokens->size()));
  }
  const auto model = metadata.text("tokenizer.ggml.model");
  if (!model) return Status(Code::corrupt, path + ": tokenizer.ggml.model is missing");
  GgufVocabulary vocabulary;
  vocabulary.model = *model;
  vocabulary.pre = metadata.text("tokenizer.ggml.pre").value_or("");
  vocabulary.tokens = *tokens;
  if (const auto* merges = metadata.texts("tokenizer.ggml.merges")) vocabulary.merges = *merges;
  vocabulary.add_bos = metadata.flag("tokenizer.ggml.add_bos_token");
  vocabulary.add_space_prefix = metadata.flag("tokenizer.ggml.add_space_prefix");
  if (auto types = read_types(path, metadata, vocabulary); !types.ok()) return types;
  if (auto ids = read_ids(path, metadata, vocabulary); !ids.ok()) return ids;
  if (vocabulary.bos_id) source.bos_token = vocabulary.tokens[*vocabulary.bos_id];
  if (vocabulary.eos_id) source.eos_token = vocabulary.tokens[*vocabulary.eos_id];
  source.gguf = std::move(vocabulary);
  return source;
}

}  // namespace drafthouse
