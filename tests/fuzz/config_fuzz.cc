#include <utility>

#include "formats/hf_config.h"
#include "formats/json_document.h"
#include "formats/tokenizer_files.h"
#include "input.h"

// config.json, generation_config.json and tokenizer_config.json, separated by zero bytes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace drafthouse;
  const auto parts = fuzz::split(fuzz::as_text(data, size), 3);
  auto config = JsonDocument::parse(parts[0], "config.json");
  if (!config.ok()) return 0;
  (void)is_draft_config(config.value());
  auto generation = JsonDocument::parse(parts[1], "generation_config.json");
  HfText text;
  (void)read_tokenizer_config("tokenizer_config.json", parts[2], text);
  const HfConfigFiles files{"config.json", std::move(config).value(), "generation_config.json",
                            generation.ok() ? std::move(generation).value() : JsonDocument(),
                            text.stops};
  (void)model_config_from_hf(files);
  (void)draft_config_from_hf(files, {"fc.weight", "hidden_norm.weight", "norm.weight"});
  return 0;
}
