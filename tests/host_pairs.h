#pragma once

// The real pairs that host tests run, and requests to them.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "drafthouse/host.h"
#include "tests/test_data.h"

namespace drafthouse::test {

inline std::string nano(const char* part) { return data_path("models/nano-qwen3") + "/" + part; }

inline ModelSpec nano_spec(const std::string& name) {
  ModelSpec spec;
  spec.name = name;
  spec.target = nano("target");
  spec.draft = nano("draft");
  return spec;
}

// Another trained pair of the test data: nano-qwen3_5 has recurrent layers, nano-gemma4 windows.
inline ModelSpec pair_spec(const std::string& name, const std::string& pair) {
  const PairPaths paths = pair_paths(pair);
  ModelSpec spec;
  spec.name = name;
  spec.target = paths.target;
  spec.draft = paths.draft;
  return spec;
}

inline ModelSpec gguf_spec(const std::string& name) {
  ModelSpec spec = nano_spec(name);
  for (const auto& file : std::filesystem::directory_iterator(nano("gguf"))) {
    const std::string path = file.path().string();
    if (path.find("q8_0") != std::string::npos || path.find("Q8_0") != std::string::npos) {
      spec.target = path;
    }
  }
  return spec;
}

// Empty target when the default model has not been fetched.
inline ModelSpec default_spec(const std::string& name) {
  ModelSpec spec;
  spec.name = name;
  spec.target = default_model();
  spec.draft = kDefaultDraft;
  return spec;
}

inline std::vector<std::uint32_t> golden_prompt(std::size_t index) {
  static const auto cases = read_json(nano("golden.json"))["cases"];
  return cases[index % cases.size()]["prompt_ids"].get<std::vector<std::uint32_t>>();
}

// A text of `count` ids made of the golden prompts, different for different seeds. Every pair here
// has these ids in its vocabulary.
inline std::vector<std::uint32_t> long_prompt(std::uint32_t seed, std::size_t count) {
  std::vector<std::uint32_t> ids;
  for (std::uint32_t i = seed; ids.size() < count; ++i) {
    const auto more = golden_prompt(i * 7 + seed);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  ids.resize(count);
  return ids;
}

inline std::unique_ptr<Host> make_host(std::size_t memory = 0) {
  HostOptions options;
  options.memory_bytes = memory;
  auto host = Host::create(options);
  EXPECT_TRUE(host.ok());
  return std::move(host).value();
}

inline SubmitRequest request(const std::string& model, std::vector<std::uint32_t> ids,
                             std::uint32_t max_tokens, std::uint32_t width = 0) {
  SubmitRequest wanted;
  wanted.model = model;
  wanted.prompt_ids = std::move(ids);
  wanted.max_tokens = max_tokens;
  wanted.width = width;
  wanted.ignore_eos = true;
  return wanted;
}

inline Event finish(Stream& stream) {
  while (true) {
    std::optional<Event> event = stream.next(120);
    if (!event.has_value()) {
      ADD_FAILURE() << "no event within two minutes";
      return {};
    }
    if (event->terminal()) return std::move(*event);
  }
}

inline Event run(Host& host, const SubmitRequest& wanted) {
  auto stream = host.submit(wanted);
  EXPECT_TRUE(stream.ok()) << (stream.ok() ? "" : stream.status().message());
  return stream.ok() ? finish(*stream.value()) : Event{};
}

// What plain decoding gives, without a host, a cache or neighbours.
inline std::vector<std::uint32_t> alone(const ModelSpec& spec,
                                        const std::vector<std::uint32_t>& prompt,
                                        std::uint32_t max_tokens,
                                        const SamplingOptions& sampling = {}) {
  static std::map<std::string, std::unique_ptr<Engine>> engines;
  auto& engine = engines[spec.target];
  if (engine == nullptr) engine = Engine::load({.target = spec.target}).value();
  GenerateRequest wanted;
  wanted.prompt_ids = prompt;
  wanted.max_tokens = max_tokens;
  wanted.ignore_eos = true;
  wanted.sampling = sampling;
  return engine->generate(wanted).value().ids;
}

// A folder of its own that goes with it.
class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / (name + "_" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace drafthouse::test
